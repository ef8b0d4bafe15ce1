// Meshes that some members have and others have not, or have no more.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mesh_members.h"

namespace distag::sim {
namespace {

using Made = std::shared_ptr<Future<std::shared_ptr<Mesh>>>;

// Workers, and their creations of a mesh.
class CreationTest : public ::testing::Test {
 protected:
  void start(uint64_t seed, int32_t size = 2, SimGroupOptions options = {}) {
    group_.reset();  // one at a time
    options.size = size;
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    group_->start();
  }
  Made create(int32_t rank, Nanos timeout, std::vector<int32_t> ranks = {0, 1}) {
    layout::MeshRequest request;
    request.name = "train";
    request.ranks = std::move(ranks);
    request.shape = {-1};
    request.axis_names = {"x"};
    return group_->worker(rank).meshes().create(std::move(request), timeout);
  }
  // Rank 0 gets the mesh, and rank 1 gives up before it hears of that. Returns the mesh of rank 0.
  std::shared_ptr<Mesh> create_for_one() {
    const Made first = create(0, kForever);
    const Made given_up = create(1, kForever);
    EXPECT_TRUE(group_->scheduler().run_until([&] { return first->is_done(); }, kSecond));
    EXPECT_FALSE(given_up->is_done());
    given_up->cancel();
    expect_failure(failure_of(*given_up), Status::kCancelled,
                   "mesh \"train\": mesh_create by worker \"w1\" (rank 1): cancelled by the caller");
    return first->value();
  }
  CollectiveCall sum_for_ever() {
    CollectiveCall call = sum_of({2});
    call.timeout = kForever;
    return call;
  }
  bool is_over_within(const Completion& completion, Nanos time) {
    return group_->scheduler().run_until([&] { return completion.is_done(); }, time);
  }

  std::unique_ptr<SimWorkerGroup> group_;
};

// At whatever moment it gives up: whoever has the mesh hears of it within about a second, though the future is kept.
TEST_F(CreationTest, OneThatAMemberCancelsEndsOnTheOthers) {
  size_t made = 0, failed = 0;
  const bool is_sweep = for_each_seed(200, [&](uint64_t seed) {
    start(seed);
    const Made kept = create(0, 30 * kSecond);
    const Made given_up = create(1, 30 * kSecond);
    group_->scheduler().run_for(static_cast<Nanos>(seed) * 20 * kMicrosecond);
    given_up->cancel();
    if (given_up->error() == nullptr) return;
    ASSERT_TRUE(is_over_within(*kept, 40 * kSecond));
    if (kept->error() != nullptr) {
      ++failed;
      return expect_failure(*kept->error(), Status::kDeadline, "\"w1\"");
    }
    ++made;
    const Result result = kept->value()->collective(sum_for_ever());
    ASSERT_TRUE(is_over_within(*result, 3 * kSecond));
    EXPECT_EQ(result->error()->status(), Status::kDisconnected) << result->error()->message();
    EXPECT_EQ(result->error()->origin_rank(), 1);
    for (const ShutdownReport& report : group_->shutdown()) EXPECT_TRUE(report.clean);
  });
  if (!is_sweep) return;
  EXPECT_GT(made, 0u);
  EXPECT_GT(failed, 0u);
}

// Its next creation, which waits for the other, does not keep it from saying that it has no such mesh.
TEST_F(CreationTest, AMemberThatCreatesAgainSaysThatItHasNoSuchMesh) {
  start(1);
  const std::shared_ptr<Mesh> mesh = create_for_one();
  const Made again = create(1, kForever);
  const Result result = mesh->collective(sum_for_ever());
  ASSERT_TRUE(is_over_within(*result, 3 * kSecond));
  expect_failure(failure_of(*result), Status::kDisconnected, "worker \"w1\" (rank 1) does not have this mesh");
  const Made other = create(0, kForever);
  ASSERT_TRUE(is_over_within(*again, kSecond) && is_over_within(*other, kSecond));
  const Result sum = again->value()->collective(sum_for_ever());
  value_of(other->value()->collective(sum_for_ever()));
  value_of(sum);
}

// A member that hears late is asked where it is before it has the mesh, and has it then: also by a member that does not
// tell which creation it means.
TEST_F(CreationTest, AMemberThatHasTheMeshLaterIsNotDenied) {
  for (const uint64_t proposed : {1, 0}) {
    start(1);
    const Made first = create(0, kForever);
    const Made second = create(1, kForever);
    ASSERT_TRUE(group_->scheduler().run_until([&] { return first->is_done(); }, kSecond));
    const Id mesh = first->value()->id();
    group_->loop(1).run([&] {
      const Peer asking = group_->worker(1).group().membership().find_by_rank(0)->peer;
      const wire::Message where{0, 0, {}, wire::Where{mesh, "", {}, proposed}};
      EXPECT_EQ(group_->worker(1).meshes().handle(asking, where), Heard::kHandled);
    });
    ASSERT_TRUE(is_over_within(*second, kSecond));
    const Result sum = first->value()->collective(sum_for_ever());
    value_of(second->value()->collective(sum_for_ever()));
    value_of(sum);
  }
}

// Three workers: the first two that create a mesh of all wait for the third.
class CreationOfThreeTest : public CreationTest {
 protected:
  CreationOfThreeTest() { start(1, 3); }
  Made create_of_all(int32_t rank, Nanos timeout) { return create(rank, timeout, {0, 1, 2}); }
};

TEST_F(CreationOfThreeTest, ADeadlineBlamesTheMemberThatNeverCame) {
  const int32_t orders[][2] = {{0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 2}, {2, 1}};
  for (const auto& [first, second] : orders) {
    const int32_t absent = 3 - first - second;
    const Made given_up = create_of_all(first, 100 * kMillisecond);
    const Made late = create_of_all(second, kSecond);
    for (const Made& made : {given_up, late}) {
      const Error error = failure_of(*made);
      expect_failure(error, Status::kDeadline, fmt::format("missing: worker \"w{}\"", absent));
      EXPECT_EQ(error.origin_rank(), absent) << error.message();
    }
    const std::string gave_up = fmt::format("; gave up: worker \"w{}\"", first);
    expect_failure(failure_of(*late), Status::kDeadline, gave_up);
  }
}

TEST_F(CreationOfThreeTest, ADeadlineWhereAllOthersGaveUpBlamesTheFirstOfThem) {
  const Made one = create_of_all(1, 100 * kMillisecond), two = create_of_all(2, 300 * kMillisecond);
  failure_of(*one);
  const Made last = create_of_all(0, kSecond);
  failure_of(*two);
  const Error error = failure_of(*last);
  expect_failure(error, Status::kDeadline, ": gave up: worker \"w1\" (rank 1), worker \"w2\" (rank 2)");
  EXPECT_EQ(error.origin_rank(), 1);
}

TEST_F(CreationOfThreeTest, ALossBlamesTheMemberThatIsLost) {
  const Made one = create_of_all(0, kForever), two = create_of_all(1, kForever);
  group_->scheduler().run_for(100 * kMillisecond);
  group_->kill(2);
  for (const Made& made : {one, two}) {
    const Error error = failure_of(*made);
    expect_failure(error, Status::kDisconnected, "\"w2\"");
    EXPECT_EQ(error.origin_rank(), 2);
  }
}

// Four workers, the last of which learns that the mesh is made from the second, which stands at first. Each has created
// another number of meshes before.
class LateMemberTest : public CreationTest {
 protected:
  void create_all(Nanos standing, uint64_t max_early = SimGroupOptions().max_early) {
    SimGroupOptions options;
    options.lease = 60 * kSecond;
    options.max_early = max_early;
    start(1, 4, options);
    for (int32_t rank = 0; rank < 4; ++rank) {
      for (int32_t i = 0; i < rank; ++i) wait(*create(rank, kSecond, {rank}), kForever);
    }
    for (int32_t rank = 0; rank < 4; ++rank) made_.push_back(create(rank, kForever, {0, 1, 2, 3}));
    ASSERT_TRUE(is_over_within(*made_[0], kSecond));
    group_->freeze(1);
    ASSERT_TRUE(is_over_within(*made_[2], kSecond));
    call(0);
    call(2);
    group_->scheduler().run_for(standing);
    ASSERT_FALSE(made_[3]->is_done());
    group_->thaw(1);
    for (const Made& made : made_) ASSERT_TRUE(is_over_within(*made, 3 * kSecond));
    call(1);
    call(3);
  }
  virtual void call(int32_t rank) { results_.push_back(mesh(rank).collective(sum_for_ever())); }
  Mesh& mesh(int32_t rank) { return *made_[static_cast<size_t>(rank)]->value(); }

  std::vector<Made> made_;
  std::vector<Result> results_;
};

TEST_F(LateMemberTest, IsAskedForTheCreationThatItKnows) {
  create_all(3 * kSecond);
  for (const Result& result : results_) value_of(result);
}

TEST_F(LateMemberTest, HasWhatTheOthersSentLongBefore) {
  create_all(30 * kSecond);
  for (const Result& result : results_) {
    ASSERT_TRUE(is_over_within(*result, 5 * kSecond));
    EXPECT_EQ(result->error(), nullptr) << result->error()->message();
  }
}

// Broadcasts of the first member, which waits for no other.
class FarAheadTest : public LateMemberTest {
 protected:
  void call(int32_t rank) override {
    for (int i = 0; i < 40; ++i) {
      CollectiveCall call = call_of(CollectiveKind::kBroadcast, {0}, numbers({4 << 10}, 1));
      call.timeout = kForever;
      results_.push_back(mesh(rank).collective(call));
    }
  }
};

TEST_F(FarAheadTest, OfAMemberThatHasNoMeshYetEndsOnAllMembers) {
  create_all(kSecond, uint64_t{1} << 20);
  for (int32_t rank = 0; rank < 4; ++rank) {
    const Result result = mesh(rank).collective(sum_for_ever());
    ASSERT_TRUE(is_over_within(*result, 5 * kSecond)) << rank;
    expect_failure(failure_of(*result), Status::kOverloaded, "worker \"w0\" (rank 0) ");
    EXPECT_TRUE(result->error()->origin_rank() == 1 || result->error()->origin_rank() == 3) << "who had no room first";
  }
}

// No memory for a part of a mesh that is still being made here. Of a worker that is no member it does not count.
TEST_F(CreationTest, APartWithoutMemoryEndsTheMeshOnceItIsMade) {
  for (const int32_t sender : {0, 2}) {
    start(1, 3);
    const Made first = create(0, kForever), second = create(1, kForever);
    ASSERT_TRUE(group_->scheduler().run_until([&] { return first->is_done(); }, kSecond));
    ASSERT_FALSE(second->is_done());
    wire::Part outline;
    outline.mesh = first->value()->id();
    group_->loop(1).run([&] {
      const Peer from = group_->worker(1).group().membership().find_by_rank(sender)->peer;
      group_->worker(1).meshes().refuse(from, wire::Message{0, 0, {}, outline},
                                        Error(Status::kOutOfMemory, "no memory for a part"));
    });
    ASSERT_TRUE(is_over_within(*second, kSecond));
    const Result here = first->value()->collective(sum_for_ever());
    const Result there = second->value()->collective(sum_for_ever());
    for (const Result& result : {here, there}) {
      ASSERT_TRUE(is_over_within(*result, 3 * kSecond));
      if (sender == 0) {
        expect_failure(failure_of(*result), Status::kOutOfMemory, "no memory for a part");
      } else {
        EXPECT_EQ(result->error(), nullptr);
      }
    }
  }
}

// A part for a member whose creations both fail. Each of them could have been that of its mesh.
TEST_F(CreationTest, WhatCameForAMeshThatIsNeverMadeIsKeptUntilThatIsKnown) {
  start(1, 3);
  const Made first = create(1, kSecond, {0, 1}), second = create(1, 2 * kSecond, {1, 2});
  group_->scheduler().run_for(100 * kMillisecond);
  bool is_dropped = false;
  const std::vector<double> elements(2);
  const auto deliver = [&] {
    Heard heard = Heard::kHandled;
    group_->loop(1).run([&] {
      const Peer from = group_->worker(1).group().membership().find_by_rank(0)->peer;
      const BufferRef buffer = Buffer::adopt(elements.data(), 16, [&is_dropped] { is_dropped = true; });
      wire::Part part;
      part.mesh = {from.incarnation, 1};
      part.pieces = {Value(Tensor::over(buffer, Dtype::kFloat64, {2}, {1}))};
      heard = group_->worker(1).meshes().handle(from, wire::Message{0, 0, {}, part});
    });
    return heard;
  };
  EXPECT_EQ(deliver(), Heard::kHandled);
  failure_of(*first);
  group_->scheduler().run_for(100 * kMillisecond);
  EXPECT_FALSE(is_dropped);
  failure_of(*second);
  group_->scheduler().run_for(100 * kMillisecond);
  EXPECT_TRUE(is_dropped);
  EXPECT_EQ(deliver(), Heard::kStale);
}

// Creations of the same three ranks that begin, are cancelled and time out at any moment, several at a time on each
// member, and in some runs a member that is killed.
class BadDayTest : public CreationTest {
 protected:
  struct Attempt {
    int32_t rank;
    Made made;
    Result result = nullptr;
  };

  int64_t any(int64_t most) { return group_->scheduler().between(0, most); }
  bool lives(int32_t rank) const { return rank != victim_; }
  void attempt(int32_t rank) { attempts_.push_back({rank, create(rank, (50 + any(300)) * kMillisecond, {0, 1, 2})}); }
  void spend(uint64_t seed) {
    attempts_.clear();
    victim_ = -1;
    SimGroupOptions options;
    options.faults.drop = seed % 3 == 0 ? 0.02 : 0;
    start(seed, 3, options);
    for (int step = 0; step < 40; ++step) {
      const auto rank = static_cast<int32_t>(any(2));
      const int64_t choice = any(9);
      if (choice < 6 && lives(rank)) attempt(rank);
      if (choice > 7 && !attempts_.empty()) {
        const Attempt& given_up = attempts_[static_cast<size_t>(any(static_cast<int64_t>(attempts_.size()) - 1))];
        if (lives(given_up.rank)) given_up.made->cancel();
      }
      if (seed % 4 == 0 && victim_ < 0 && any(20) == 0) group_->kill(victim_ = rank);
      group_->scheduler().run_for(any(any(1) == 0 ? 300 : 30'000) * kMicrosecond);
    }
    std::erase_if(attempts_, [this](const Attempt& one) { return !lives(one.rank); });
  }
  bool have_ended(Nanos time) {
    return group_->scheduler().run_until(
        [this] {
          return std::all_of(attempts_.begin(), attempts_.end(), [](const Attempt& one) {
            return one.made->is_done() && (one.result == nullptr || one.result->is_done());
          });
        },
        time);
  }
  void expect_creations_to_end() {
    ASSERT_TRUE(have_ended(6 * kSecond));
    for (const Attempt& one : attempts_) {
      if (one.made->error() == nullptr) continue;
      const Status status = one.made->error()->status();
      const bool is_right = status == Status::kDeadline || status == Status::kCancelled ||
                            (status == Status::kDisconnected && victim_ >= 0);
      EXPECT_TRUE(is_right) << one.made->error()->message();
    }
  }
  // A mesh works for all members that have it, or for none.
  void expect_meshes_to_agree() {
    std::map<Id, std::vector<const Attempt*>> meshes;
    for (Attempt& one : attempts_) {
      if (one.made->error() != nullptr) continue;
      one.result = one.made->value()->collective(sum_for_ever());
      meshes[one.made->value()->id()].push_back(&one);
    }
    ASSERT_TRUE(have_ended(8 * kSecond));
    for (const auto& [id, members] : meshes) {
      for (const Attempt* one : members) {
        const Error* const error = one->result->error();
        EXPECT_EQ(error == nullptr, members.size() == 3) << members.size() << " have it";
        if (error == nullptr) continue;
        EXPECT_EQ(error->status(), Status::kDisconnected) << error->message();
        for (const Attempt* other : members) EXPECT_NE(error->origin_rank(), other->rank) << error->message();
      }
      made_ += members.size() == 3 ? 1 : 0;
      half_made_ += members.size() == 3 ? 0 : 1;
    }
  }
  void expect_that_the_next_is_made() {
    std::vector<int32_t> ranks;
    for (const int32_t rank : {0, 1, 2}) {
      if (lives(rank)) ranks.push_back(rank);
    }
    attempts_.clear();
    for (const int32_t rank : ranks) attempts_.push_back({rank, create(rank, kForever, ranks)});
    ASSERT_TRUE(have_ended(5 * kSecond));
    for (Attempt& one : attempts_) one.result = one.made->value()->collective(sum_for_ever());
    ASSERT_TRUE(have_ended(5 * kSecond));
    for (const Attempt& one : attempts_) EXPECT_EQ(one.result->error(), nullptr);
  }

  int32_t victim_ = -1;
  std::vector<Attempt> attempts_;
  size_t made_ = 0, half_made_ = 0;
};

TEST_F(BadDayTest, CreationsEndAndTheNextOneIsMade) {
  const bool is_sweep = for_each_seed(300, [this](uint64_t seed) {
    spend(seed);
    ASSERT_NO_FATAL_FAILURE(expect_creations_to_end());
    ASSERT_NO_FATAL_FAILURE(expect_meshes_to_agree());
    ASSERT_NO_FATAL_FAILURE(expect_that_the_next_is_made());
    const std::string of_victim = fmt::format("\"w{}\"", victim_);
    for (const std::string& line : group_->log_lines()) {
      EXPECT_TRUE(line.find(" is lost: ") == std::string::npos || line.find(of_victim) != std::string::npos) << line;
    }
  });
  if (!is_sweep) return;
  EXPECT_GT(made_, 0u);
  EXPECT_GT(half_made_, 0u);
}

// A member forgets meshes that have ended, but not before it has told the others: here one that cannot be reached has
// yet to hear with which member the mesh ended.
TEST(MeshCreation, AMeshIsKeptUntilAllHaveHeardOfItsEnd) {
  MeshGroup members(1, {3});
  SimWorkerGroup& group = members.group();
  CollectiveCall to_other = call_of(CollectiveKind::kReduce, members.all_axes(), numbers({2}, 1));
  to_other.root = 1;
  const CollectiveCall to_first = call_of(CollectiveKind::kReduce, members.all_axes(), numbers({2}, 1));
  group.network().part("w0", "w1");
  members.mesh(0).collective(to_other);
  members.mesh(2).collective(to_other);
  members.mesh(2).leave();
  group.scheduler().run_for(10 * kMillisecond);
  expect_failure(failure_of(*members.mesh(0).collective(to_first)), Status::kDisconnected,
                 "worker \"w2\" (rank 2) has left it");
  members.forget(0);
  layout::MeshRequest alone;
  alone.ranks = {0};
  for (int i = 0; i < 70; ++i) {
    const auto made = group.worker(0).meshes().create(alone, kSecond);
    wait(*made, kForever);
    made->value()->leave();
    group.scheduler().run_for(kMillisecond);
  }
  group.network().join("w0", "w1");
  members.mesh(1).collective(to_other);
  members.mesh(1).collective(to_first);
  const Result result = members.mesh(1).collective(call_of(CollectiveKind::kBroadcast, {0}, numbers({2}, 1)));
  expect_failure(failure_of(*result), Status::kDisconnected, "worker \"w2\" (rank 2) has left it");
}

}  // namespace
}  // namespace distag::sim
