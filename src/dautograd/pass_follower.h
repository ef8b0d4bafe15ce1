#pragma once

#include "dautograd/local_pass.h"

namespace distag {

// Observes the part of a pass on a worker that did not begin it: reports to the initiator by messages. On the loop.
class PassFollower final : public PassObserver {
 public:
  // The part owns this.
  PassFollower(DautogradShared& shared, std::shared_ptr<ContextRecord> context, const LocalPass& part)
      : shared_(shared), context_(std::move(context)), part_(part) {}

  void on_planned(const std::set<Incarnation>&, bool) override {}  // a follower begins no walk of its own

  void on_done(wire::Grad* last) override {
    assert_on_loop(shared_.environment.loop);
    const PassInfo& info = part_.info();
    context_->begin_prepared(info.pass);
    if (last != nullptr) {
      last->done = true;
      last->grads_sent = part_.grads().sent();
      last->grads_received = part_.grads().received();
      return;
    }
    wire::Done done{context_->id(), info.pass, false, {}, part_.grads().sent(), part_.grads().received(), {}};
    done.creates_graph = info.creates_graph;
    if (info.fast) done.grads_to.assign(part_.grads().receivers().begin(), part_.grads().receivers().end());
    shared_.tell(info.pass.maker, std::move(done));
  }

  void on_failed(const Error& error) override {
    assert_on_loop(shared_.environment.loop);
    const Id& pass = part_.info().pass;
    shared_.tell(pass.maker, wire::Done{context_->id(), pass, true, error, 0, 0, {}, part_.way().is_misplanned()});
  }

 private:
  DautogradShared& shared_;
  const std::shared_ptr<ContextRecord> context_;
  const LocalPass& part_;
};

}  // namespace distag
