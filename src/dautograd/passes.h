#pragma once

#include <memory>

#include "dautograd/context_table.h"
#include "dautograd/pass_initiator.h"

namespace distag {

// The passes of all contexts on one worker: begins its own, and passes messages and losses on to their parts. On the
// loop.
class Passes {
 public:
  static constexpr size_t kMaxPerInitiator = 4096;  // open at a time, of each other worker

  Passes(DautogradShared& shared, ContextTable& contexts) : shared_(shared), contexts_(contexts) {}

  // Completes plan.future, whatever happens. Returns the initiator, nullptr when it never began.
  std::shared_ptr<PassInitiator> begin(const Id& context, PassInitiator::Plan plan);

  // Throws Violation for what its sender may not send, and any other Error for what fails here: refuse() follows.
  Heard handle(const Peer& from, wire::Message& message);
  // Fails the one thing that the message is about.
  void refuse(const Peer& from, const wire::Message& outline, const Error& why);
  void on_gone(Incarnation peer, const Error& error);
  void on_long_lack(Incarnation peer, const Error& lack);

 private:
  Heard handle(const Peer& from, wire::Discover& discover);
  Heard handle(const Peer& from, wire::Discovered& discovered);
  Heard handle(const Peer& from, wire::Go& go);
  Heard handle(const Peer& from, wire::Entered& entered);
  Heard handle(const Peer& from, wire::Start& start);
  Heard handle(const Peer& from, wire::Expect& expect);
  Heard handle(const Peer& from, wire::Grad& grad);
  Heard handle(const Peer& from, wire::Done& done);
  Heard handle(const Peer& from, wire::Verdict& verdict);
  Heard handle(const Peer& from, wire::Probe& probe);
  Heard handle(const Peer& from, wire::ProbeAnswer& answer);
  Heard handle(const Peer& from, wire::Joined& joined);
  Heard handle(const Peer& from, wire::Holders& holders);

  DistributedContext::Pass* find(const Id& context, const Id& pass);
  std::shared_ptr<PassInitiator> find_initiator(const Id& context, const Id& pass);
  std::shared_ptr<LocalPass> find_or_make(const std::shared_ptr<DistributedContext>& context, const PassInfo& info,
                                          const Peer& from);
  void fail_pass(const Id& context, const Id& id, const Error& error);

  DautogradShared& shared_;
  ContextTable& contexts_;
};

}  // namespace distag
