#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/log_throttle.h"
#include "group/joining.h"
#include "transport/transport.h"

namespace distag {

// Rank 0 of a tcp rendezvous: takes JOINs until all ranks are there, then sends the roster to all. It goes on serving
// workers that come back, and all workers in an open world. An error of one joiner is answered to that joiner alone;
// the deadline fails the whole group while it gathers. A member counts as here as long as its connection is open.
class RendezvousHost final : public Joining {
 public:
  RendezvousHost(const std::string& uri, Loop& loop, Transport& transport, Log& log);

  void on_gone(Incarnation incarnation) override;
  void look_up(Incarnation incarnation, Answer answer) override;
  uint64_t refused() const override { return refused_; }

 private:
  void begin() override;
  Error awaited() override;

  void on_message(const ConnectionToken& from, const Frames& frames);
  void note_refusal(const std::string& text);
  void refuse(const ConnectionToken& from, Error error, const wire::Join& join);
  void take_join(const ConnectionToken& from, const wire::Join& join);
  void on_join(const ConnectionToken& from, const wire::Join& join);
  void check_is_the_same(const Peer& known, const wire::Member& member) const;
  // Throws when the joiner may not join. Returns false if it waits until its rival has been probed.
  bool admit(const ConnectionToken& from, const wire::Join& join);
  bool waits_for_rival(const ConnectionToken& from, const wire::Join& join);
  void on_probed(Incarnation rival, bool is_alive);
  wire::Join with_name_of_key(const ConnectionToken& from, wire::Join join) const;
  void complete();
  void fail_all(const Error& error);
  bool answer(const ConnectionToken& to, wire::Body body);
  wire::Roster roster_of_missing() const;
  bool answer_with_roster(const ConnectionToken& to);
  void answer_who_it_is(const ConnectionToken& to, Incarnation asked);

  Transport& transport_;
  std::unique_ptr<Acceptor> acceptor_;
  std::optional<RankTable> rank_table_;
  std::map<Incarnation, ConnectionToken> guests_;
  // By the member whose connection is gone and whose place another worker wants: it may still live.
  struct Probe {
    ConnectionToken connection;  // connection of the claimant, whose latest JOIN is `join`
    wire::Join join;
  };
  std::map<Incarnation, Probe> probes_;
  std::optional<Error> failure_;
  LogThrottle refusal_log_;
  uint64_t refused_ = 0;
};

}  // namespace distag
