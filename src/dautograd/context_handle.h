#pragma once

#include <memory>

#include "autograd/context.h"
#include "dautograd/context_record.h"
#include "dautograd/dautograd_shared.h"
#include "dautograd/pass_initiator.h"

namespace distag {

// A context as the host holds it. When the creator's handle goes, the context ends; other handles just name it.
class ContextHandle : public Context {
 public:
  ContextHandle(std::shared_ptr<DautogradShared> shared, std::shared_ptr<ContextRecord> record, bool keeps)
      : shared_(std::move(shared)), record_(std::move(record)), keeps_(keeps) {}
  ~ContextHandle() override;

  uint64_t id() const override { return record_->number(); }
  Id global_id() const override { return record_->id(); }
  void backward(const Tensors& roots, const BackwardOptions& options) override;
  std::shared_ptr<Future<Value>> backward_async(const Tensors& roots, const BackwardOptions& options) override;
  std::shared_ptr<const Gradients> gradients() override { return record_->read(shared_->environment.lease); }
  std::shared_ptr<Future<Value>> settle_async() override;
  void scale_gradients(std::span<const uint64_t> leaves, double factor, uint64_t passes) override {
    record_->scale(leaves, factor, passes);
  }
  ContextInfo info() override { return record_->info(); }
  std::vector<int32_t> known_ranks() override { return record_->known_ranks(); }

  bool is_of(const DautogradShared& shared) const { return shared_.get() == &shared; }

 protected:
  ContextRecord& record() const { return *record_; }
  Nanos lease() const { return shared_->environment.lease; }
  // Whether this worker is the context's creator.
  bool is_own() const { return record_->id().maker == shared_->self.incarnation; }
  // Runs a pass that this worker begins, from edges; waits. Throws the error of the pass.
  void run_pass(autograd::Roots roots, const BackwardOptions& options);
  // Commits the gradients that a pass gives to leaves here, if it needs no other worker.
  void commit(const Id& pass, std::vector<Gradients::Entry> gradients) { record_->commit(pass, std::move(gradients)); }

 private:
  void run_local(PassInitiator::Plan& plan);

  const std::shared_ptr<DautogradShared> shared_;
  const std::shared_ptr<ContextRecord> record_;
  const bool keeps_;
};

}  // namespace distag
