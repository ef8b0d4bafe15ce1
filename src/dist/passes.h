#pragma once

#include <memory>

#include "dist/context_table.h"
#include "dist/pass_initiator.h"

namespace distag {

// The passes of all contexts on one worker: begins those of its own, and leads messages and losses to their parts. On
// the loop.
class Passes {
 public:
  Passes(DistShared& shared, ContextTable& contexts) : shared_(shared), contexts_(contexts) {}

  // Completes plan.future, whatever happens. Returns the initiator, nullptr when it never began.
  std::shared_ptr<PassInitiator> begin(const Id& context, PassInitiator::Plan plan);

  // False when the message is of another layer. Throws PROTOCOL for what its sender may not say.
  bool handle(const Peer& from, wire::Message& message);
  void on_gone(Incarnation peer, const Error& error);

 private:
  void handle(const Peer& from, wire::Discover& discover);
  void handle(const Peer& from, wire::Discovered& discovered);
  void handle(const Peer& from, wire::Start& start);
  void handle(const Peer& from, wire::Grad& grad);
  void handle(const Peer& from, wire::Done& done);
  void handle(const Peer& from, wire::Verdict& verdict);
  void handle(const Peer& from, wire::Probe& probe);
  void handle(const Peer& from, wire::ProbeAnswer& answer);
  void handle(const Peer& from, wire::Joined& joined);
  void handle(const Peer& from, wire::Holders& holders);

  DistContext::Pass* find(const Id& context, const Id& pass);
  PassInitiator* find_initiator(const Id& context, const Id& pass);
  // The part of a pass that was begun elsewhere; made when the first message about it comes.
  PassPart& find_or_make(const std::shared_ptr<DistContext>& context, const PassInfo& info, const Peer& from);

  DistShared& shared_;
  ContextTable& contexts_;
};

}  // namespace distag
