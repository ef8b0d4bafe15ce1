#include "dist/passes.h"

#include <utility>

#include "dist/pass_follower.h"

namespace distag {

std::shared_ptr<PassInitiator> Passes::begin(const Id& id, PassInitiator::Plan plan) {
  const std::shared_ptr<Future<Value>> future = plan.future;
  if (future->is_done()) return nullptr;  // cancelled before it began
  const auto context = contexts_.find(id);
  if (context == nullptr || shared_.session == nullptr) {
    Error stopped(Status::kCancelled, "the worker was shut down");
    future->fail((shared_.session == nullptr ? stopped : contexts_.missing(id)).add_context("backward pass"));
    return nullptr;
  }
  auto initiator = std::make_shared<PassInitiator>(shared_, context, std::move(plan),
                                                   [this, context] { contexts_.release_if_over(context); });
  try {
    initiator->begin();
  } catch (...) {
    future->fail(current_error().add_context("backward pass"));
    return nullptr;
  }
  return initiator;
}

bool Passes::handle(const Peer& from, wire::Message& message) {
  return std::visit(
      [this, &from](auto& body) {
        if constexpr (requires { this->handle(from, body); }) {
          handle(from, body);
          return true;
        } else {
          return false;
        }
      },
      message.body);
}

DistContext::Pass* Passes::find(const Id& context_id, const Id& pass_id) {
  const auto context = contexts_.find(context_id);
  if (context == nullptr) return nullptr;
  auto pass = context->passes.find(pass_id);
  return pass == context->passes.end() ? nullptr : &pass->second;
}

PassInitiator* Passes::find_initiator(const Id& context_id, const Id& pass_id) {
  const DistContext::Pass* pass = find(context_id, pass_id);
  return pass == nullptr ? nullptr : pass->initiator.get();
}

PassPart& Passes::find_or_make(const std::shared_ptr<DistContext>& context, const PassInfo& info, const Peer& from) {
  auto found = context->passes.find(info.pass);
  if (found != context->passes.end()) return *found->second.part;
  auto part = std::make_shared<PassPart>(shared_, context, info, nullptr);
  part->set_lead(std::make_unique<PassFollower>(shared_, context->record, *part));
  context->passes[info.pass].part = part;
  if (from.incarnation != info.pass.maker) shared_.tell(info.pass.maker, wire::Joined{context->id(), info.pass});
  if (info.fast) part->take_all_sends({});
  return *part;
}

void Passes::handle(const Peer& from, wire::Discover& discover) {
  const auto context = contexts_.find(discover.context);
  Error error;
  if (context == nullptr) {
    error = contexts_.missing(discover.context);
  } else if (discover.pass.maker == shared_.self.incarnation && find(discover.context, discover.pass) == nullptr) {
    return;  // a pass of this worker that is over: everybody it reached is told
  } else if (discover.pass.maker != shared_.self.incarnation && shared_.session->is_lost(discover.pass.maker)) {
    error = *shared_.session->gone(discover.pass.maker);
  } else {
    find_or_make(context, {discover.pass, discover.retain_graph, false}, from).on_discover(from, discover);
    return;
  }
  shared_.tell(
      from.incarnation,
      wire::Discovered{discover.context, discover.pass, discover.request, true, shared_.sign(std::move(error)), {}});
}

void Passes::handle(const Peer& from, wire::Discovered& discovered) {
  if (DistContext::Pass* pass = find(discovered.context, discovered.pass)) {
    const std::shared_ptr<PassPart> part = pass->part;
    part->on_discovered(from, discovered);
  }
}

void Passes::handle(const Peer& from, wire::Start& start) {
  if (start.pass.maker != from.incarnation)
    fail(Status::kProtocol, "worker \"{}\" starts a pass of another", from.name);
  const auto context = contexts_.find(start.context);
  if (context == nullptr) {
    const Error error = shared_.sign(contexts_.missing(start.context));
    shared_.tell(from.incarnation, wire::Done{start.context, start.pass, true, error, 0, 0, {}});
    return;
  }
  find_or_make(context, {start.pass, start.retain_graph, true}, from);
}

void Passes::handle(const Peer& from, wire::Grad& grad) {
  const auto context = contexts_.find(grad.context);
  if (context == nullptr) return;
  std::shared_ptr<PassPart> part;
  if (DistContext::Pass* pass = find(grad.context, grad.pass)) {
    part = pass->part;
  } else {
    const bool is_over = grad.pass.maker == shared_.self.incarnation || shared_.session->is_lost(grad.pass.maker);
    if (!grad.fast || is_over) return;
    part = find_or_make(context, {grad.pass, grad.retain_graph, true}, from).shared_from_this();
  }
  part->on_grad(from, grad);
}

void Passes::handle(const Peer& from, wire::Done& done) {
  if (PassInitiator* initiator = find_initiator(done.context, done.pass)) {
    const auto kept = initiator->shared_from_this();
    kept->on_done(from, done);
  }
}

void Passes::handle(const Peer& from, wire::Verdict& verdict) {
  if (verdict.pass.maker != from.incarnation || verdict.pass.maker == shared_.self.incarnation) {
    fail(Status::kProtocol, "worker \"{}\" ends a pass of another", from.name);
  }
  DistContext::Pass* pass = find(verdict.context, verdict.pass);
  if (pass == nullptr) return;
  const std::shared_ptr<PassPart> part = pass->part;
  if (!verdict.commit) {
    part->drop();
  } else if (part->is_done()) {
    part->commit();
  } else {
    fail(Status::kProtocol, "worker \"{}\" commits a pass that is not done here", from.name);
  }
}

void Passes::handle(const Peer& from, wire::Probe& probe) {
  wire::ProbeAnswer answer{probe.context, probe.pass, probe.round, false, 0, 0, {}, {}};
  if (DistContext::Pass* pass = find(probe.context, probe.pass)) {
    const PassPart& part = *pass->part;
    answer.idle = part.is_idle();
    answer.grads_sent = part.grads_sent();
    answer.grads_received = part.grads_received();
    answer.grads_to.assign(part.grads_to().begin(), part.grads_to().end());
    if (answer.idle) {
      constexpr size_t kMostNamed = 64;
      answer.unreached = part.waiting_calls();
      if (answer.unreached.size() > kMostNamed) answer.unreached.resize(kMostNamed);
    }
  }
  shared_.tell(from.incarnation, std::move(answer));
}

void Passes::handle(const Peer& from, wire::ProbeAnswer& answer) {
  if (PassInitiator* initiator = find_initiator(answer.context, answer.pass)) {
    const auto kept = initiator->shared_from_this();
    kept->on_probe_answer(from, answer);
  }
}

void Passes::handle(const Peer& from, wire::Joined& joined) {
  if (!joined.pass) {
    contexts_.on_joined(from, joined.context);
    return;
  }
  if (joined.pass.maker != shared_.self.incarnation) {
    fail(Status::kProtocol, "worker \"{}\" joined a pass that is not of this worker", from.name);
  }
  if (PassInitiator* initiator = find_initiator(joined.context, joined.pass)) {
    initiator->on_joined(from);
  } else {
    shared_.tell(from.incarnation,
                 wire::Verdict{joined.context, joined.pass, false, Error(Status::kCancelled, "the pass is over")});
  }
}

void Passes::handle(const Peer& from, wire::Holders& holders) {
  if (holders.answer) {
    if (PassInitiator* initiator = find_initiator(holders.context, holders.request)) {
      const auto kept = initiator->shared_from_this();
      kept->on_holders(holders.holders);
    }
    return;
  }
  wire::Holders answer{holders.context, holders.request, true, {}};
  if (const auto context = contexts_.find(holders.context)) {
    answer.holders.assign(context->holders.begin(), context->holders.end());
    answer.holders.push_back(shared_.self.incarnation);
  }
  shared_.tell(from.incarnation, std::move(answer));
}

void Passes::on_gone(Incarnation peer, const Error& error) {
  std::vector<std::pair<std::shared_ptr<DistContext>, DistContext::Pass>> all;
  for (const auto& context : contexts_.all()) {
    for (const auto& [pass_id, pass] : context->passes) all.emplace_back(context, pass);
  }
  for (const auto& [context, pass] : all) {
    const Id id = pass.part->info().pass;
    if (!context->passes.contains(id)) continue;  // ended by one before
    if (pass.initiator != nullptr) {
      pass.initiator->on_gone(peer, error);
    } else if (id.maker != peer) {
      pass.part->on_gone(peer, error);
    } else {
      if (pass.part->is_done()) {
        context->record->lose_verdict(
            id, Error(error.status(), fmt::format("gradients: pass {} has run here, but its verdict is lost with its "
                                                  "initiator: {}",
                                                  id.counter, error.message())));
      }
      pass.part->drop();
    }
  }
}

}  // namespace distag
