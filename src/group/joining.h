#pragma once

#include <memory>
#include <string>
#include <vector>

#include "group/rank_table.h"
#include "group/rendezvous.h"

namespace distag {

// The part that all kinds of rendezvous share: one request, its deadline, and an outcome that is reported once, by a
// task of its own. On the loop.
class Joining : public Rendezvous {
 public:
  Joining(Loop& loop, Log& log, std::string uri);
  ~Joining() override;

  void join(const JoinRequest& request, Callback done) final;

 protected:
  // Called when the request is valid and the deadline runs. An error that it throws is the outcome.
  virtual void begin() = 0;
  // The reason why there is no group yet: the outcome at the deadline, and the text that a long start logs.
  virtual Error awaited() = 0;
  // The deadline has passed: this worker withdraws.
  virtual void on_deadline() {}

  // Throws PROTOCOL unless the members form a group with this worker in it: they may come from other processes.
  void check_members(const std::vector<Peer>& members) const;
  // Requires members that pass check_members().
  void succeed(std::vector<Peer> members);
  void give_up(Error error);
  bool is_over() const { return is_over_; }

  const JoinRequest& request() const { return request_; }
  const std::string& uri() const { return uri_; }
  wire::Join join_message() const;

  // Runs the task at `when` unless this object is gone by then; a new timer replaces the earlier one.
  void set_timer(Nanos when, Task task);
  void cancel_timer();
  // For tasks that others post: expired once this object is gone.
  std::weak_ptr<char> alive() const { return alive_; }
  // Doubles `pause` up to `longest`; returns `first` when it is 0.
  static Nanos next_pause(Nanos pause, Nanos first, Nanos longest);

  Loop& loop_;
  Log& log_;

 private:
  void tell(Outcome outcome);
  void log_in_a_while();

  const std::string uri_;
  JoinRequest request_;
  Callback done_;
  bool is_over_ = false;
  Loop::TimerId deadline_timer_ = 0;
  Loop::TimerId log_timer_ = 0;
  Nanos begun_ = 0;
  Loop::TimerId timer_ = 0;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

// Joins at a rendezvous that is hosted elsewhere: no worker is refused here.
class JoiningElsewhere : public Joining {
 public:
  using Joining::Joining;
  uint64_t refused() const final { return 0; }
};

}  // namespace distag
