#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rref/sharing.h"

namespace distag::testing {

// Everything is on it, always.
class OneLoop final : public Loop {
 public:
  [[nodiscard]] bool post(Task task) override {
    task();
    return true;
  }
  [[nodiscard]] bool post(TaskPlace&, Task task) noexcept override { return post(std::move(task)); }
  TimerId start_timer(Nanos, Task) override { return 1; }
  void start_timer(TaskPlace&, Nanos, Task) noexcept override {}
  void cancel_timer(TimerId) override {}
  const Clock& clock() const override { return clock_; }
  bool is_current() const override { return true; }

 private:
  struct Standing final : Clock {
    Nanos now() const override { return 0; }
  };
  Standing clock_;
};

// An event that can happen next beside the steps of users. At worker `at`, unless it says otherwise.
struct Event {
  enum class Kind : uint8_t {
    kDeliver,      // the next message from `from`
    kAcknowledge,  // of the next message to `from`
    kLose,         // it hears that `from` is lost
    kNumber,       // the call that makes value `from` leaves the queue
    kFinish,       // the function that makes value `from` ends
    kCrash,        // `at` dies
    kPart,         // `at` and `from` lose each other
    kUser,         // the next step of user `from`
  };
  Kind kind = Kind::kDeliver;
  uint8_t at = 0;
  uint8_t from = 0;
};

std::string describe(const Event& event);

// The invariant that does not hold.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Some `Sharing`s, one per worker, and streams between them: in order per ordered pair of workers, exactly once, until
// one loses the other. Beside them a shadow: each holder, its reference and its sharer, and so which values have to be
// there.
class SharingGroup {
 public:
  explicit SharingGroup(size_t size);
  ~SharingGroup();
  SharingGroup(const SharingGroup&) = delete;
  SharingGroup& operator=(const SharingGroup&) = delete;

  static constexpr size_t kNone = SIZE_MAX;

  // ---- what users do; each gives the holder of a reference ----
  size_t create(size_t worker);
  size_t remote(size_t worker, size_t owner);
  size_t share(size_t holder, size_t to);  // in a message of its own; kNone: `to` is lost
  void drop(size_t holder);
  // The call that makes the value of a holder never goes out.
  void fail_creation(size_t holder);

  // Acknowledgements arrive with what they acknowledge, not as events of their own. As long as no worker loses an owner
  // they change nothing that another event could see.
  void acknowledge_at_once() { acknowledges_at_once_ = true; }
  // Calls that make values are numbered as soon as they are made, and their functions end as soon as they begin.
  void make_at_once() { makes_at_once_ = true; }

  bool has(size_t holder) const { return holders_[holder].handle != nullptr; }
  bool is_alive(size_t worker) const { return workers_[worker]->is_alive; }
  size_t worker_of(size_t holder) const { return holders_[holder].worker; }
  bool is_in_queue(size_t holder) const { return values_[holders_[holder].value].creation == Creation::kInQueue; }

  // ---- what happens by itself ----
  std::vector<Event> next() const;
  void play(const Event& event);

  // The events that have happened, up to the order of those at different workers: equal keys, equal states.
  // With `next`: that of the state after it, as long as there was no loss.
  uint64_t key(const Event* next = nullptr) const;
  void note(const Event& event);  // a user's step, for the key

  // Throw Broken. In every state; when next() is empty; and then with all references dropped.
  void check() const;
  void check_quiet() const;
  void check_empty() const;

 private:
  enum class Creation : uint8_t { kNone, kInQueue, kNumbered, kRunning, kMade };
  struct SharedValue {
    Id id;
    size_t owner = 0;
    size_t creator = 0;  // its holder
    Creation creation = Creation::kNone;
    bool is_dead = false;  // the call that would have made it never arrives
    std::shared_ptr<Rref> in_queue;
    std::shared_ptr<OwnedValue> running;
  };
  struct Holder {
    size_t value = 0;
    size_t worker = 0;
    size_t parent = kNone;   // who passed it on
    size_t same_as = kNone;  // one that passed it on to itself
    bool is_counted = false;
    bool is_orphan = false;  // its parent was lost before it was counted: the value may be gone
    bool is_lost = false;    // it and the owner have lost each other
    std::shared_ptr<Rref> handle;
  };
  struct Passing {
    wire::Reference reference;
    size_t holder = 0;
  };
  struct Making {
    size_t value = 0;
  };
  struct Letter {
    std::variant<wire::Body, Passing, Making> content;
    Task on_acknowledged;
  };
  struct Worker final : Sharing::Streams {
    Worker(SharingGroup& g, size_t i);
    void send(const Peer& to, wire::Body body, Task on_acknowledged) override;
    std::shared_ptr<const Peer> find(Incarnation worker) const override;
    bool is_gone(Incarnation worker) const override;
    std::string name_of_rank(int32_t rank) const override;

    SharingGroup& group;
    const size_t index;
    std::shared_ptr<const Peer> peer;
    Log log;
    std::shared_ptr<RrefHome> home;
    Sharing sharing;
    bool is_alive = true;
    uint64_t history = 0;
    uint64_t last_own = 0;
    uint64_t last_creation = 0;
    std::vector<bool> lost;
    std::vector<std::deque<Letter>> inbox;  // by sender
    std::vector<std::deque<Task>> acks;     // by receiver: of what this one sent
  };

  static size_t index_of(Incarnation incarnation) { return static_cast<size_t>(incarnation - 100); }
  size_t root(size_t holder) const;
  size_t add_holder(Holder holder);
  void put(size_t from, size_t to, Letter letter);
  void number(size_t value);
  void finish(size_t value);
  void deliver(size_t from, size_t to);
  void arrive(size_t from, Worker& at, Passing& passing);
  void arrive(size_t from, Worker& at, Making& making);
  void lose(size_t at, size_t gone);
  void orphan(size_t at, size_t gone);
  void crash(size_t worker);
  void check_holder(const Holder& holder, const Holder& original) const;
  void check_failures(const Worker& worker) const;

  OneLoop loop_;
  bool acknowledges_at_once_ = false;
  bool makes_at_once_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<SharedValue> values_;
  std::vector<Holder> holders_;
  std::map<Id, size_t> by_fork_;
  std::vector<std::pair<size_t, size_t>> parted_;
};

}  // namespace distag::testing
