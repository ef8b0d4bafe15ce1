#include "dautograd/passes.h"

#include <type_traits>
#include <utility>

#include "base/violation.h"
#include "dautograd/pass_follower.h"

namespace distag {

std::shared_ptr<PassInitiator> Passes::begin(const Id& id, PassInitiator::Plan plan) {
  assert_on_loop(shared_.environment.loop);
  const std::shared_ptr<Future<Value>> future = plan.future;
  if (future->is_done()) return nullptr;  // cancelled before it began
  const auto context = contexts_.find(id);
  if (context == nullptr || shared_.session == nullptr) {
    Error stopped(Status::kCancelled, "the worker was shut down");
    future->fail((shared_.session == nullptr ? stopped : contexts_.missing(id)).add_context("backward pass"));
    return nullptr;
  }
  std::shared_ptr<PassInitiator> initiator;
  try {
    initiator = std::make_shared<PassInitiator>(shared_, context, std::move(plan),
                                                [this, context] { contexts_.release_if_over(context); });
    initiator->begin();
  } catch (...) {
    if (initiator == nullptr) {
      future->fail(current_error());
    } else {
      initiator->abort(current_error());
    }
    return nullptr;
  }
  return initiator;
}

Heard Passes::handle(const Peer& from, wire::Message& message) {
  assert_on_loop(shared_.environment.loop);
  return std::visit(
      [this, &from](auto& body) {
        if constexpr (requires { this->handle(from, body); }) {
          return handle(from, body);
        } else {
          return Heard::kStale;  // for another layer: never passed here
        }
      },
      message.body);
}

DistributedContext::Pass* Passes::find(const Id& context_id, const Id& pass_id) {
  const auto context = contexts_.find(context_id);
  if (context == nullptr) return nullptr;
  auto pass = context->passes.find(pass_id);
  return pass == context->passes.end() ? nullptr : &pass->second;
}

std::shared_ptr<PassInitiator> Passes::find_initiator(const Id& context_id, const Id& pass_id) {
  const DistributedContext::Pass* pass = find(context_id, pass_id);
  return pass == nullptr ? nullptr : pass->initiator;
}

// Finds or makes the part of a pass that was begun elsewhere. Throws why it cannot be made: nothing would ever end it.
std::shared_ptr<LocalPass> Passes::find_or_make(const std::shared_ptr<DistributedContext>& context,
                                                const PassInfo& info, const Peer& from) {
  auto found = context->passes.find(info.pass);
  if (found != context->passes.end()) return found->second.part;
  const Incarnation initiator = info.pass.maker;
  if (initiator == shared_.self.incarnation) fail(Status::kCancelled, "the pass is over");
  if (shared_.session->find(initiator) == nullptr) {
    fail(Status::kDisconnected, "the initiator of the pass was never in the group, or gone before this worker joined");
  }
  if (const Error* gone = shared_.session->gone(initiator)) throw *gone;
  if (shared_.open_passes.contains(info.pass)) {
    violation("worker \"{}\" names pass {} of {} in another context", from.name, info.pass.counter,
              shared_.describe(initiator));
  }
  if (shared_.open_passes.parts_of(initiator) >= kMaxPerInitiator) {
    fail(Status::kOverloaded, "{} takes part in {} passes of {}, which is the limit",
         shared_.describe(shared_.self.incarnation), kMaxPerInitiator, shared_.describe(initiator));
  }
  auto part = std::make_shared<LocalPass>(shared_, context, info, nullptr);
  try {
    part->state().observe(std::make_unique<PassFollower>(shared_, context->record, *part));
    shared_.open_passes.add(info.pass, context);
    context->passes[info.pass].part = part;
    if (from.incarnation != initiator) shared_.tell(initiator, wire::Joined{context->id(), info.pass});
    if (info.fast) part->way().begin({}, {}, {});
  } catch (...) {
    part->drop(Status::kInternal);
    throw;
  }
  return part;
}

Heard Passes::handle(const Peer& from, wire::Discover& discover) {
  if (discover.request.maker != from.incarnation || (discover.pairs.empty() && discover.entries.empty())) {
    violation("a DISCOVER of worker \"{}\" for nothing, or with an id that is not its own", from.name);
  }
  const auto context = contexts_.find(discover.context);
  if (discover.pass.maker == shared_.self.incarnation && find(discover.context, discover.pass) == nullptr) {
    return Heard::kStale;  // all workers that the pass reached hear of its end
  }
  if (context == nullptr && discover.pairs.empty()) {
    fail(Status::kInvalidState,
         "this member of a mesh does not hold the context of the pass: it has ended, or no function was called here in "
         "it; call the function on each member");
  }
  if (context == nullptr) throw contexts_.missing(discover.context);
  const PassInfo info{discover.pass, discover.retain_graph, false, false, discover.creates_graph};
  find_or_make(context, info, from)->way().on_discover(from, discover);
  return Heard::kHandled;
}

// Each DISCOVER has an id of its own, made here: an answer to one that is not open any more is late.
Heard Passes::handle(const Peer& from, wire::Discovered& discovered) {
  if (discovered.request.maker != shared_.self.incarnation || discovered.request.counter > shared_.last_request) {
    violation("worker \"{}\" answers a DISCOVER that was never sent", from.name);
  }
  const DistributedContext::Pass* pass = find(discovered.context, discovered.pass);
  if (pass == nullptr) return Heard::kStale;
  const std::shared_ptr<LocalPass> part = pass->part;
  return part->way().on_discovered(from, discovered);
}

Heard Passes::handle(const Peer& from, wire::Go& go) {
  if (go.pass.maker != from.incarnation) violation("worker \"{}\" runs a pass of another", from.name);
  const DistributedContext::Pass* pass = find(go.context, go.pass);
  if (pass == nullptr) return Heard::kStale;
  const std::shared_ptr<LocalPass> part = pass->part;
  return part->on_go();
}

Heard Passes::handle(const Peer& from, wire::Entered& entered) {
  const DistributedContext::Pass* pass = find(entered.context, entered.pass);
  if (pass == nullptr) return Heard::kStale;
  const std::shared_ptr<LocalPass> part = pass->part;
  return part->on_entered(from, entered.entry);
}

Heard Passes::handle(const Peer& from, wire::Start& start) {
  if (start.pass.maker != from.incarnation) violation("worker \"{}\" starts a pass of another", from.name);
  const auto context = contexts_.find(start.context);
  if (context == nullptr) throw contexts_.missing(start.context);
  const PassInfo info{start.pass, start.retain_graph, true, false, start.creates_graph};
  find_or_make(context, info, from)->state().takes(from, start.creates_graph);
  return Heard::kHandled;
}

Heard Passes::handle(const Peer& from, wire::Expect& expect) {
  const Id& pass = expect.pass;
  if (pass.maker != from.incarnation || pass.maker == shared_.self.incarnation) {
    violation("worker \"{}\" plans a pass of another", from.name);
  }
  const auto context = contexts_.find(expect.context);
  if (context == nullptr) {
    const Error why = shared_.sign(contexts_.missing(expect.context));
    shared_.tell(pass.maker, wire::Done{expect.context, pass, true, why, 0, 0, {}, true});
    return Heard::kHandled;
  }
  const PassInfo info{pass, expect.retain_graph, false, true, expect.creates_graph};
  find_or_make(context, info, from)->way().on_expect(from, expect);
  return Heard::kHandled;
}

// In a planned pass the initiator's own GRAD comes after its EXPECT. A DONE that a GRAD carries counts after it.
Heard Passes::handle(const Peer& from, wire::Grad& grad) {
  const auto context = contexts_.find(grad.context);
  if (context == nullptr) return Heard::kStale;
  const Incarnation initiator = grad.pass.maker;
  const bool may_make = grad.fast || (grad.planned && initiator != from.incarnation);
  const bool is_over = !may_make || initiator == shared_.self.incarnation || shared_.is_gone(initiator);
  if (is_over && find(grad.context, grad.pass) == nullptr) return Heard::kStale;
  const PassInfo info{grad.pass, grad.retain_graph, grad.fast, grad.planned && !grad.fast, grad.creates_graph};
  find_or_make(context, info, from)->on_grad(from, grad);
  if (!grad.done) return Heard::kHandled;
  if (const auto began = find_initiator(grad.context, grad.pass)) {
    began->on_done(
        from,
        {grad.context, grad.pass, false, {}, grad.grads_sent, grad.grads_received, {}, false, grad.creates_graph});
  }
  return Heard::kHandled;
}

Heard Passes::handle(const Peer& from, wire::Done& done) {
  const auto initiator = find_initiator(done.context, done.pass);
  if (initiator == nullptr) return Heard::kStale;
  initiator->on_done(from, done);
  return Heard::kHandled;
}

Heard Passes::handle(const Peer& from, wire::Verdict& verdict) {
  if (verdict.pass.maker != from.incarnation || verdict.pass.maker == shared_.self.incarnation) {
    violation("worker \"{}\" ends a pass of another", from.name);
  }
  const DistributedContext::Pass* pass = find(verdict.context, verdict.pass);
  if (pass == nullptr) return Heard::kStale;
  const std::shared_ptr<LocalPass> part = pass->part;
  if (verdict.commit) {
    part->commit_if_done();
  } else {
    part->drop(verdict.error.status());
  }
  return Heard::kHandled;
}

Heard Passes::handle(const Peer& from, wire::Probe& probe) {
  wire::ProbeAnswer answer{probe.context, probe.pass, probe.round, false, 0, 0, {}, {}};
  if (DistributedContext::Pass* pass = find(probe.context, probe.pass)) {
    const LocalPass& part = *pass->part;
    answer.idle = part.is_idle();
    answer.grads_sent = part.grads().sent();
    answer.grads_received = part.grads().received();
    answer.grads_to.assign(part.grads().receivers().begin(), part.grads().receivers().end());
    if (answer.idle) {
      constexpr size_t kMostNamed = 64;
      answer.unreached = part.waiting_calls();
      if (answer.unreached.size() > kMostNamed) answer.unreached.resize(kMostNamed);
    }
  }
  shared_.tell(from.incarnation, std::move(answer));
  return Heard::kHandled;
}

Heard Passes::handle(const Peer& from, wire::ProbeAnswer& answer) {
  const auto initiator = find_initiator(answer.context, answer.pass);
  if (initiator == nullptr) return Heard::kStale;
  initiator->on_probe_answer(from, answer);
  return Heard::kHandled;
}

Heard Passes::handle(const Peer& from, wire::Joined& joined) {
  if (!joined.pass) return contexts_.on_joined(from, joined.context);
  if (joined.pass.maker != shared_.self.incarnation) {
    violation("worker \"{}\" joined a pass that is not of this worker", from.name);
  }
  if (const auto initiator = find_initiator(joined.context, joined.pass)) {
    initiator->on_joined(from);
    return Heard::kHandled;
  }
  shared_.tell(from.incarnation,
               wire::Verdict{joined.context, joined.pass, false, Error(Status::kCancelled, "the pass is over")});
  return Heard::kStale;
}

Heard Passes::handle(const Peer& from, wire::Holders& holders) {
  if (holders.answer) {
    const auto initiator = find_initiator(holders.context, holders.request);
    if (initiator == nullptr) return Heard::kStale;
    if (holders.context.maker != from.incarnation) {
      violation("worker \"{}\" names the holders of a context of another", from.name);
    }
    initiator->on_holders(holders.holders);
    return Heard::kHandled;
  }
  wire::Holders answer{holders.context, holders.request, true, {}};
  if (const auto context = contexts_.find(holders.context)) {
    answer.holders.assign(context->holders.begin(), context->holders.end());
    answer.holders.push_back(shared_.self.incarnation);
  }
  shared_.tell(from.incarnation, std::move(answer));
  return Heard::kHandled;
}

// ---- messages that fail here ----

void Passes::refuse(const Peer& from, const wire::Message& outline, const Error& why) {
  assert_on_loop(shared_.environment.loop);
  const Error error = shared_.sign(why);
  if (const auto* discover = std::get_if<wire::Discover>(&outline.body)) {
    shared_.tell(from.incarnation,
                 wire::Discovered{discover->context, discover->pass, discover->request, true, error, {}, false});
    return;
  }
  std::visit(
      [this, &error](const auto& body) {
        if constexpr (requires { body.pass; }) {
          fail_pass(body.context, body.pass, error);
        } else if constexpr (std::is_same_v<std::decay_t<decltype(body)>, wire::Holders>) {
          if (body.answer) fail_pass(body.context, body.request, error);
        }
      },
      outline.body);
}

// Whatever it was that failed: the pass cannot give all gradients any more.
void Passes::fail_pass(const Id& context, const Id& id, const Error& error) {
  if (!id) return;
  const DistributedContext::Pass* pass = find(context, id);
  if (pass != nullptr && pass->initiator != nullptr) {
    const std::shared_ptr<PassInitiator> initiator = pass->initiator;
    initiator->abort(error);
  } else if (pass != nullptr) {
    const std::shared_ptr<LocalPass> part = pass->part;
    part->fail_here(error);
  } else if (id.maker != shared_.self.incarnation) {
    shared_.tell(id.maker, wire::Done{context, id, true, error, 0, 0, {}});
  }
}

void Passes::on_gone(Incarnation peer, const Error& error) {
  assert_on_loop(shared_.environment.loop);
  for (const auto& [id, context] : shared_.open_passes.all()) {
    const auto found = context->passes.find(id);
    if (found == context->passes.end()) continue;  // ended by one before
    const DistributedContext::Pass pass = found->second;
    if (pass.initiator != nullptr) {
      pass.initiator->on_gone(peer, error);
    } else if (id.maker != peer) {
      pass.part->on_gone(peer, error);
    } else {
      if (pass.part->state().is_done()) {
        context->record->lose_verdict(
            id, Error(error.status(), fmt::format("gradients: pass {} has run here, but its verdict is lost with its "
                                                  "initiator: {}",
                                                  id.counter, error.message())));
      }
      pass.part->lose_initiator(error);
    }
  }
}

// A part tells the initiator of its pass, and that tells the other participants, if they can.
void Passes::on_long_lack(Incarnation peer, const Error& lack) {
  assert_on_loop(shared_.environment.loop);
  for (const auto& [id, context] : shared_.open_passes.all()) {
    const auto found = context->passes.find(id);
    if (found == context->passes.end()) continue;
    const DistributedContext::Pass pass = found->second;
    if (pass.initiator != nullptr) {
      pass.initiator->on_gone(peer, lack);
    } else if (id.maker != peer) {
      pass.part->on_gone(peer, lack);
    }
  }
}

}  // namespace distag
