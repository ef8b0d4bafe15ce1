#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace distag::faults {

// The monotonic clock as it is, whatever a fault has made of it. The same in all processes of the machine.
int64_t true_now();

enum class Way { kSent, kArrived };

// The fault of this process: at most one is armed at a time, waits for its step, and happens once. A step is a message
// that was sent or has arrived ("Grad", kSent), a word of a handshake ("Curve.hello", kArrived), or a moment of a file
// ("Group.rename", kSent). Any thread.
//
//   kill         SIGKILL
//   stop         SIGSTOP; another process sends SIGCONT
//   cut          all connections of the process are shut down
//   lose         this message vanishes
//   mute, deaf   from here on all that is sent, or arrives, vanishes
//   slow         from here on, for half a second, messages arrive 5 ms apart
//   memory       the next 60 allocations of this thread are refused unless they need no more than was freed
//   clock        the monotonic clock goes on 2.5 s later
//   date         the clock of the day goes back by a day
//   disk         no file can be made or written until "mend"
//   etcd-kill    SIGKILL for the server of etcd, which another process starts again
//   etcd-stop    SIGSTOP for it; another process sends SIGCONT
//
// Each says in a line on the standard output when it has happened: {"fault": NAME, "at": nanoseconds}.
class FaultPoints {
 public:
  // When it comes to that step for the `nth` time from now on.
  void arm(std::string step, Way way, std::string fault, int nth);
  // False: the armed one has not happened.
  bool disarm();
  // Undoes the faults that last and can be undone: mute, deaf, slow, memory, disk.
  void mend();

  // The process has come to that step: before what has arrived is looked at, and after what is sent was handed on.
  void reach(const std::string& step, Way way);
  // Whether the message that comes in or is to go out vanishes.
  bool loses(const std::string& step, Way way);
  // The next message of that kind, which has a payload, goes out with a changed byte in it.
  void damage(std::string step);
  bool takes_damage(const std::string& step);
  // Whether messages that go that way vanish at present.
  bool is_losing(Way way);
  // Whether the armed step is one of tests/faults/handshake.h, whose count needs no memory from then on.
  bool is_of_handshake() const { return is_of_handshake_.load(); }
  bool is_slow() const { return slow_until_.load() > true_now(); }
  bool is_disk_full() const { return is_disk_full_.load(); }
  int64_t steady_offset() const { return steady_offset_.load(); }
  int64_t date_offset() const { return date_offset_.load(); }

  // All steps that the process came to, and how often.
  std::map<std::pair<std::string, Way>, int> steps();

 private:
  bool is_of_messages() const { return fault_ == "lose" || fault_ == "mute" || fault_ == "deaf"; }
  int& vanishing(Way way) { return vanishing_[way == Way::kSent ? 0 : 1]; }
  bool is_due(const std::string& step, Way way) { return way == way_ && step == step_ && left_ > 0 && --left_ == 0; }
  void happen();
  void say(int64_t at) const;

  std::mutex mutex_;
  std::string step_, fault_;
  std::string damaged_;  // the kind of message; empty: none
  Way way_ = Way::kSent;
  int left_ = 0;                    // until the armed one happens; 0: none is armed
  std::array<int, 2> vanishing_{};  // messages that still do, by way
  std::map<std::pair<std::string, Way>, int> steps_;
  std::atomic<int64_t> slow_until_{0}, steady_offset_{0}, date_offset_{0};
  std::atomic<bool> is_disk_full_{false}, is_of_handshake_{false};
};

// The fault points of this process.
FaultPoints& fault_points();

}  // namespace distag::faults
