// The reference protocol in every order in which things can happen: three workers, one value, up to four messages that
// pass it on, and at most one loss at any moment.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <optional>
#include <unordered_map>

#include "sharing_group.h"

namespace distag::testing {
namespace {

constexpr size_t kOwner = 0, kWorkers = 3;

enum class Origin { kShared, kMade, kMadeAtOnce, kMadeForItself };
enum class Fault { kNone, kCrash0, kCrash1, kCrash2, kPart01, kPart02, kPart12, kFailedCreation };
const std::vector<Fault> kLosses{Fault::kCrash0, Fault::kCrash1, Fault::kCrash2,
                                 Fault::kPart01, Fault::kPart02, Fault::kPart12};

// User 0 has the value made, user i gets it from an earlier one. Each passes it on as often as others get it from it,
// and drops it then.
struct Case {
  struct Pass {
    size_t from_user;
    size_t to_worker;
  };
  Origin origin = Origin::kShared;
  std::vector<Pass> passes;
  Fault fault = Fault::kNone;

  std::string describe() const {
    static constexpr const char* kOrigins[] = {"shared by w0", "made at w0 for w1", "made at once at w0 for w1",
                                               "made at w0 for itself"};
    std::string text = kOrigins[static_cast<size_t>(origin)];
    for (size_t i = 0; i < passes.size(); ++i) {
      text += fmt::format(", user {} passes it to user {} at w{}", passes[i].from_user, i + 1, passes[i].to_worker);
    }
    return text + fmt::format(", fault {}", static_cast<int>(fault));
  }
};

// A path through a case, up to now.
class Run {
 public:
  explicit Run(const Case& given) : case_(given), group_(kWorkers), users_(given.passes.size() + 1) {
    const Fault fault = given.fault;
    if (fault != Fault::kCrash0 && fault != Fault::kPart01 && fault != Fault::kPart02) group_.acknowledge_at_once();
    if (given.origin == Origin::kMadeAtOnce) group_.make_at_once();
    for (size_t i = 0; i < given.passes.size(); ++i) users_[given.passes[i].from_user].children.push_back(i + 1);
  }

  std::vector<Event> next() const {
    std::vector<Event> events = group_.next();
    for (size_t user = 0; user < users_.size(); ++user) {
      if (can_step(user)) events.push_back(user_event(user));
    }
    return events;
  }
  // Instead of all that, at any time.
  std::optional<Event> fault() const {
    if (is_fault_over_ || !has_begun()) return std::nullopt;
    const auto number = static_cast<int>(case_.fault);
    if (case_.fault == Fault::kFailedCreation) {
      if (!group_.is_in_queue(0)) return std::nullopt;
      return Event{Event::Kind::kUser, static_cast<uint8_t>(group_.worker_of(0)), kFailure};
    }
    if (case_.fault >= Fault::kPart01) {
      return Event{Event::Kind::kPart, static_cast<uint8_t>(number == 6), static_cast<uint8_t>(number == 4 ? 1 : 2)};
    }
    if (case_.fault == Fault::kNone) return std::nullopt;
    return Event{Event::Kind::kCrash, static_cast<uint8_t>(number - 1), 0};
  }

  void play(const Event& event) {
    if (event.kind == Event::Kind::kUser) {
      group_.note(event);
      step(event.from);
    } else {
      is_fault_over_ = is_fault_over_ || event.kind == Event::Kind::kCrash || event.kind == Event::Kind::kPart;
      group_.play(event);
    }
  }
  void check() const {
    group_.check();
    if (!group_.next().empty()) return;
    group_.check_quiet();
    if (next().empty()) group_.check_empty();
  }
  uint64_t key() const { return group_.key(); }
  // The key of the state after the event; nothing where only that state itself can tell.
  std::optional<uint64_t> key_after(const Event& event) const {
    const bool is_fault = event.kind == Event::Kind::kCrash || event.kind == Event::Kind::kPart;
    if (is_fault || is_fault_over_) return std::nullopt;
    return group_.key(&event);
  }

 private:
  static constexpr uint8_t kFailure = 255;
  struct User {
    std::vector<size_t> children;
    size_t steps = 0;
    size_t holder = SharingGroup::kNone;
  };

  bool has_begun() const { return users_[0].holder != SharingGroup::kNone; }
  size_t origin_worker() const {
    return case_.origin == Origin::kMade || case_.origin == Origin::kMadeAtOnce ? 1 : kOwner;
  }
  bool can_step(size_t user) const {
    if (user == 0 && !has_begun()) return group_.is_alive(origin_worker());
    return users_[user].holder != SharingGroup::kNone && group_.has(users_[user].holder);
  }
  Event user_event(size_t user) const {
    const size_t worker = user == 0 ? origin_worker() : case_.passes[user - 1].to_worker;
    return {Event::Kind::kUser, static_cast<uint8_t>(worker), static_cast<uint8_t>(user)};
  }
  void step(size_t index) {
    if (index == kFailure) {
      group_.fail_creation(0);
      return;
    }
    User& user = users_[index];
    if (user.holder == SharingGroup::kNone) {
      user.holder = case_.origin == Origin::kShared ? group_.create(kOwner) : group_.remote(origin_worker(), kOwner);
    } else if (user.steps < user.children.size()) {
      const size_t child = user.children[user.steps++];
      users_[child].holder = group_.share(user.holder, case_.passes[child - 1].to_worker);
    } else {
      group_.drop(user.holder);
    }
  }

  const Case& case_;
  SharingGroup group_;
  std::vector<User> users_;
  bool is_fault_over_ = false;
};

// Depth first, each state once: two orders that differ only in what happens first at different workers end in the same.
class Explorer {
 public:
  explicit Explorer(const Case& given) : case_(given) {}

  // The number of ways to the end.
  double explore() { return explore(std::make_unique<Run>(case_)); }
  size_t states() const { return ways_.size(); }

 private:
  double explore(std::unique_ptr<Run> run) {
    const uint64_t key = run->key();
    const auto known = ways_.find(key);
    if (known != ways_.end()) return known->second;
    try {
      run->check();
    } catch (const std::exception& error) {
      throw Broken(error.what() + tell());
    }
    std::vector<Event> events = run->next();
    if (const auto fault = run->fault()) events.push_back(*fault);
    double ways = events.empty() ? 1 : 0;
    std::vector<std::optional<uint64_t>> keys;
    for (const Event& event : events) keys.push_back(run->key_after(event));
    for (size_t i = 0; i < events.size(); ++i) {
      const auto after = keys[i] ? ways_.find(*keys[i]) : ways_.end();
      if (after != ways_.end()) {
        ways += after->second;
        continue;
      }
      std::unique_ptr<Run> next = run ? std::move(run) : replay();
      path_.push_back(events[i]);
      try {
        next->play(events[i]);
      } catch (const Error& error) {
        throw Broken(error.message() + tell());
      }
      ways += explore(std::move(next));
      path_.pop_back();
    }
    ways_.emplace(key, ways);
    return ways;
  }
  std::unique_ptr<Run> replay() const {
    auto run = std::make_unique<Run>(case_);
    for (const Event& event : path_) run->play(event);
    return run;
  }
  std::string tell() const {
    std::string text = "\n  " + case_.describe();
    for (const Event& event : path_) text += "\n  " + testing::describe(event);
    return text;
  }

  const Case& case_;
  std::vector<Event> path_;
  std::unordered_map<uint64_t, double> ways_;  // by state: from there to the end
};

class SharingExhaustiveTest : public ::testing::Test {
 protected:
  void explore(const Case& one) {
    Explorer explorer(one);
    ways_ += explorer.explore();
    states_ += explorer.states();
    ++cases_;
  }
  // All ways of passing on `count` times.
  void explore_all(Origin origin, size_t count, const std::vector<Fault>& faults) {
    Case one;
    one.origin = origin;
    one.passes.resize(count);
    size_t combinations = 1;
    for (size_t i = 0; i < count; ++i) combinations *= (i + 1) * kWorkers;
    for (size_t combination = 0; combination < combinations; ++combination) {
      size_t rest = combination;
      for (size_t i = 0; i < count; ++i) {
        one.passes[i] = {rest % (i + 1), rest / (i + 1) % kWorkers};
        rest /= (i + 1) * kWorkers;
      }
      for (const Fault fault : faults) {
        one.fault = fault;
        explore(one);
      }
    }
  }
  void TearDown() override {
    std::cout << fmt::format("{} cases, {} states, {:.3g} orders\n", cases_, states_, ways_);
    RecordProperty("cases", static_cast<int>(cases_));
    RecordProperty("states", static_cast<int>(states_));
    RecordProperty("orders", fmt::format("{:.3g}", ways_));
  }

 private:
  size_t cases_ = 0;
  size_t states_ = 0;
  double ways_ = 0;
};

TEST_F(SharingExhaustiveTest, AValueThatItsOwnerShares) {
  for (size_t count = 0; count <= 3; ++count) explore_all(Origin::kShared, count, {Fault::kNone});
}

TEST_F(SharingExhaustiveTest, AValueThatACallMakes) {
  for (size_t count = 0; count <= 2; ++count) {
    explore_all(Origin::kMade, count, {Fault::kNone});
    explore_all(Origin::kMadeForItself, count, {Fault::kNone});
  }
}

TEST_F(SharingExhaustiveTest, AValueThatIsMadeAtOnce) {
  for (size_t count = 0; count <= 2; ++count) explore_all(Origin::kMadeAtOnce, count, {Fault::kNone});
}

TEST_F(SharingExhaustiveTest, ALossWhileItsOwnerShares) {
  for (size_t count = 0; count <= 2; ++count) explore_all(Origin::kShared, count, kLosses);
}

TEST_F(SharingExhaustiveTest, ALossWhileACallMakesIt) {
  explore_all(Origin::kMade, 0, kLosses);
  explore_all(Origin::kMade, 1, {Fault::kCrash0, Fault::kCrash1, Fault::kCrash2, Fault::kPart01});
  for (size_t count = 0; count <= 1; ++count) explore_all(Origin::kMadeForItself, count, kLosses);
}

TEST_F(SharingExhaustiveTest, ALossOfOneThatIsMadeAtOnce) {
  for (size_t count = 0; count <= 1; ++count) explore_all(Origin::kMadeAtOnce, count, kLosses);
  // On to another user, and from there to the third, to the owner and back.
  for (size_t last = 0; last < kWorkers; ++last) {
    for (const Fault fault : {Fault::kCrash1, Fault::kCrash2}) {
      explore({Origin::kMadeAtOnce, {{0, 2}, {1, last}}, fault});
    }
  }
}

TEST_F(SharingExhaustiveTest, ACallThatNeverGoesOut) {
  for (size_t count = 0; count <= 2; ++count) explore_all(Origin::kMade, count, {Fault::kFailedCreation});
}

}  // namespace
}  // namespace distag::testing
