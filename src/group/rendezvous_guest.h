#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "group/joining.h"
#include "transport/transport.h"

namespace distag {

// A rank other than 0 at a tcp rendezvous: dials until rank 0 answers, and repeats JOIN until it has the roster. The
// connection then stays, and is made again if it drops: it shows rank 0 that the place is taken.
class RendezvousGuest final : public JoiningElsewhere {
 public:
  RendezvousGuest(const std::string& uri, Loop& loop, Transport& transport, Log& log);

  void look_up(Incarnation incarnation, Answer answer) override;

 private:
  void begin() override;
  Error awaited() override;

  std::string found() const;
  void dial();
  void say_join();
  bool say(Incarnation asked);
  void on_message(const Frames& frames);
  void on_roster(const wire::Roster& roster);
  void on_whole_roster(const std::vector<wire::Member>& roster);
  void on_word_to_member(const wire::Roster& roster);
  void on_answer(const wire::Roster& roster);
  void on_denied();
  // Closes the connection outside its callbacks, and dials again after a pause.
  void redial();
  bool is_done() const { return is_over() && !is_member_; }

  Transport& transport_;
  std::unique_ptr<Connection> connection_;
  Nanos dialled_at_ = 0;
  std::string found_;  // result of the last finished attempt
  bool was_answered_ = false;
  bool is_member_ = false;
  wire::Member self_;  // with the rank, name and generation that the group assigned
  std::vector<int32_t> missing_;
  std::vector<wire::Member> roster_;  // the pages received so far
  std::map<Incarnation, Answer> asked_;
  Nanos pause_ = 0;
};

}  // namespace distag
