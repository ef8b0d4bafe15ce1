#pragma once

#include <memory>
#include <string>
#include <vector>

#include "group/rank_table.h"
#include "group/rendezvous.h"

namespace distag {

// The part that every kind of rendezvous has in common: one request, its deadline, and an outcome that is told once, by
// a task of its own. On the loop.
class Joining : public Rendezvous {
 public:
  Joining(Loop& loop, Log& log, std::string uri);
  ~Joining() override;

  void join(const JoinRequest& request, Callback done) final;

 protected:
  // The request is sound and the clock runs. The error that it throws is the outcome.
  virtual void begin() = 0;
  // Why there is no group yet: the outcome once time is up, and what a long start logs.
  virtual Error awaited() = 0;
  // Time is up: this worker withdraws.
  virtual void on_deadline() {}

  // Throws PROTOCOL for members that are no group with this worker in it: they may come from others.
  void check_members(const std::vector<Peer>& members) const;
  // With members that pass it.
  void succeed(std::vector<Peer> members);
  void give_up(Error error);
  bool is_over() const { return is_over_; }

  const JoinRequest& request() const { return request_; }
  const std::string& uri() const { return uri_; }
  wire::Join join_message() const;

  // Runs the task at `when` unless this is gone by then; a timer that is set anew replaces the one before.
  void set_timer(Nanos when, Task task);
  void cancel_timer();
  // For tasks that others post: expired once this is gone.
  std::weak_ptr<char> alive() const { return alive_; }
  // `pause`, doubled up to `longest`, with the first value when it is 0.
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

}  // namespace distag
