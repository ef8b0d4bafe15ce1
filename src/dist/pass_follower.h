#pragma once

#include "dist/pass_part.h"

namespace distag {

// Leads the part of a pass on a worker that did not begin it: reports go to the initiator as messages. On the loop.
class PassFollower final : public PassLead {
 public:
  PassFollower(DistShared& shared, std::shared_ptr<ContextRecord> context, const Id& pass)
      : shared_(shared), context_(std::move(context)), pass_(pass) {}

  void on_planned(const std::set<Incarnation>&) override {}  // it begins no walk of its own

  void on_done(uint64_t grads_sent, uint64_t grads_received) override {
    context_->begin_doubt(pass_);
    shared_.tell(pass_.maker, wire::Done{context_->id(), pass_, false, {}, grads_sent, grads_received});
  }

  void on_failed(const Error& error) override {
    shared_.tell(pass_.maker, wire::Done{context_->id(), pass_, true, error, 0, 0});
  }

 private:
  DistShared& shared_;
  const std::shared_ptr<ContextRecord> context_;
  const Id pass_;
};

}  // namespace distag
