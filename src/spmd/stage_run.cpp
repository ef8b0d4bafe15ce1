#include "spmd/stage_run.h"

#include <fmt/format.h>

#include <utility>

#include "base/each_step.h"
#include "base/fail_future.h"

namespace distag::spmd {
namespace {

constexpr const char* kOver = "the pass is over";

std::string name_of_line(const Id& pass) { return fmt::format("backward pass {:x}-{}", pass.maker, pass.counter); }

// The line goes with the pass.
class LineOfPass {
 public:
  explicit LineOfPass(const Line& line) : line_(line) {}
  ~LineOfPass() { line_.program->forget_line(line_.name); }
  LineOfPass(const LineOfPass&) = delete;
  LineOfPass& operator=(const LineOfPass&) = delete;

 private:
  const Line& line_;
};

}  // namespace

StageRun::StageRun(std::shared_ptr<Program> program, const Id& pass, bool retain_graph,
                   std::vector<std::shared_ptr<autograd::Node>> entries,
                   std::shared_ptr<const autograd::JointSaved> saved)
    : line_{std::move(program), name_of_line(pass)},
      retain_graph_(retain_graph),
      over_(Status::kCancelled, kOver),
      saved_(std::move(saved)),
      line_end_(line_.name),
      entries_(std::move(entries)) {
  for (const auto& entry : entries_) gradients_.emplace(entry.get(), Future<Tensor>::make());
}

std::vector<Gradients::Entry> StageRun::run(const Leave& leave) {
  leave_ = &leave;
  const LineOfPass of_pass(line_);
  CallOnLine call(line_, "backward");
  call.wait_for_ever();
  JointPass pass(call, this);
  pass.walk_from(entries_);
  call.note("backward",
            Fingerprint().add("backward").add(pass.plan_hash()).add(retain_graph_ ? uint64_t{1} : uint64_t{0}).value());
  pass.run({}, {});
  if (pass.failure()) throw *pass.failure();
  return pass.take_gradients();
}

void StageRun::check() const {
  if (is_over_) throw over_;
}

std::shared_ptr<autograd::Node::SavedData> StageRun::saved_of(const autograd::Node& node) const {
  const auto found = saved_->find(&node);
  return found == saved_->end() ? nullptr : found->second;
}

Tensor StageRun::await_entry(const autograd::Node& entry) { return await(*gradients_.at(&entry)); }

void StageRun::leave(std::vector<autograd::Edge> edges, Tensors gradients) {
  (*leave_)(std::move(edges), std::move(gradients));
}

void StageRun::enter(const autograd::Node& entry, Tensor gradient) {
  const auto& future = gradients_.at(&entry);
  if (!future->is_done()) future->complete(std::move(gradient));
}

void StageRun::cancel() noexcept {
  is_over_ = true;
  line_.program->mesh().close_line(line_end_, over_);
  EachStep each;
  for (const auto& [entry, future] : gradients_) {
    if (!future->is_done()) each([&future = future, this] { fail_or_say_less(*future, over_); });
  }
}

void StageRun::forget(Program& program, const Id& pass) {
  Mesh::LineEnd end(name_of_line(pass));
  program.mesh().close_line(end, Error(Status::kCancelled, kOver));
}

}  // namespace distag::spmd
