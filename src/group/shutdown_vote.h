#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "group/shared.h"
#include "group/vote_round.h"
#include "group/vote_ticks.h"

namespace distag {

// How the members of a static group find out that none of them has work left. The lowest living rank leads and
// asks in rounds. Each member answers whether it wants to stop, whether it is idle, and how many requests it sent
// to and received from each peer. The group is quiet after two rounds in a row in which all are stopping and
// idle, the counts are equal, and each pair has received what it sent: then no request was on its way. Lost
// members, and pairs that lost each other, are left out. In an open group each member is quiet once it is idle.
// On the loop.
//
//   waiting -> asked      the leader's ShutdownPoll: answered now, and again whenever the answer changes
//   any     -> leading    this is the lowest living rank and wants to stop
//   any     -> quiet      the leader's verdict, or its own as leader; the last state
class ShutdownVote {
 public:
  struct Callbacks {
    std::function<bool()> is_idle;  // nothing of this worker is under way
    std::function<void()> on_quiet;
  };

  ShutdownVote(GroupShared& shared, Callbacks callbacks);

  void begin();  // a shutdown was requested here
  void stop();   // cancels the timer; nothing happens after it

  // Returns false if this worker does not know that `from` leads; if it learns that later, it answers then.
  bool on_ask(const Peer& from, const wire::ShutdownPoll& ask);
  void on_answer(const Peer& from, const wire::ShutdownAnswer& answer);
  void on_verdict(const Peer& from, const wire::ShutdownVerdict& verdict);
  void on_members_changed();

  // The members known here as lost, or as not asking to stop and so keeping the group from being quiet. By
  // rank.
  std::vector<std::string> missing() const;

 private:
  bool is_leader() const { return leader() == shared_.self.incarnation; }
  Incarnation leader() const;               // the lowest living rank
  std::vector<Incarnation> others() const;  // all other living members
  wire::ShutdownAnswer own_answer() const;

  void start_round();
  std::vector<Incarnation> missing_to_leader() const;
  void tell_missing_soon();
  void tell_missing();
  void examine_round();
  void finish();

  void answer(Incarnation from, const wire::ShutdownPoll& ask);
  void answer_early_ask();
  void greet_leader();
  void answer_leader();
  void look_whether_idle();
  void tick();
  void go_on();
  void be_quiet();
  void send(Incarnation to, wire::Body body);

  GroupShared& shared_;
  const Callbacks callbacks_;
  bool is_stopping_ = false;
  bool is_over_ = false;

  // As leader.
  VoteRound round_;
  std::vector<Incarnation> told_missing_;
  Loop::TimerId tell_timer_ = 0;

  // As a member.
  Incarnation greeted_ = 0;  // the leader that knows of this worker
  Incarnation leader_ = 0;   // the leader that asked last
  uint64_t asked_round_ = 0;
  std::map<Incarnation, wire::ShutdownPoll> early_asks_;  // latest poll of each worker that does not lead, or not yet
  bool is_answer_final_ = false;                          // the answer said stopping and idle
  bool told_stopping_ = false;
  std::vector<Incarnation> missing_;

  VoteTicks ticks_;
  TaskPlace quiet_place_;
};

}  // namespace distag
