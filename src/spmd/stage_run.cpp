#include "spmd/stage_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "base/fail_future.h"

namespace distag::spmd {
namespace {

constexpr const char* kOver = "the pass is over";

std::string name_of_line(const Id& pass) { return fmt::format("backward pass {:x}-{}", pass.maker, pass.counter); }

// The first member chooses the line that goes on, if entries are of several.
bool leads(const Program& program) { return program.position() == 0; }

bool has_several_lines(const std::vector<std::shared_ptr<autograd::Node>>& entries) {
  const auto line_of = [](const auto& entry) { return entry->as_entry()->entry().line; };
  return std::any_of(entries.begin(), entries.end(),
                     [&](const auto& entry) { return line_of(entry) != line_of(entries.front()); });
}

// The line ends with the pass.
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
      entries_(std::move(entries)),
      has_several_lines_(has_several_lines(entries_)) {
  everywhere_.reserve(entries_.size());
  std::set<Incarnation> others;
  if (has_several_lines_ && leads(*line_.program)) {
    const std::vector<Incarnation> all = line_.program->mesh().other_members();
    others.insert(all.begin(), all.end());
  }
  for (const auto& entry : entries_) awaited_.emplace(entry.get(), Awaited{Future<Tensor>::make(), others});
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
  if (pass.failure()) {
    // All members have found it, as they exchanged hashes.
    if (pass.failure()->status() == Status::kDiverged) call.end_mesh(*pass.failure());
    throw *pass.failure();
  }
  return pass.take_gradients();
}

void StageRun::check() const {
  if (is_over_) throw over_;
}

std::shared_ptr<autograd::Node::SavedData> StageRun::saved_of(const autograd::Node& node) const {
  const auto found = saved_->find(&node);
  return found == saved_->end() ? nullptr : found->second;
}

Tensor StageRun::await_entry(const autograd::Node& entry) { return await(*awaited_.at(&entry).gradient); }

size_t StageRun::await_first(const std::vector<const autograd::Node*>& entries) {
  if (!leads(*line_.program)) return 0;
  for (;;) {
    std::shared_ptr<Future<Unit>> more;
    {
      MutexLock lock(mutex_);
      check();
      for (size_t i = 0; i < entries.size(); ++i) {
        if (std::count(everywhere_.begin(), everywhere_.end(), entries[i]) != 0) return i;
      }
      more = more_ = Future<Unit>::make();
    }
    wait(*more, kForever);
  }
}

void StageRun::leave(std::vector<autograd::Edge> edges, Tensors gradients) {
  (*leave_)(std::move(edges), std::move(gradients));
}

std::optional<Incarnation> StageRun::enter(const autograd::Node& entry, Tensor gradient) {
  const Awaited& awaited = awaited_.at(&entry);
  if (awaited.gradient->is_done()) return std::nullopt;
  awaited.gradient->complete(std::move(gradient));
  if (!has_several_lines_) return std::nullopt;
  if (!leads(*line_.program)) return line_.program->mesh().other_members().front();
  note_if_everywhere(entry, awaited);
  return std::nullopt;
}

void StageRun::enter_elsewhere(const autograd::Node& entry, Incarnation member) {
  Awaited& awaited = awaited_.at(&entry);
  if (awaited.elsewhere.erase(member) != 0) note_if_everywhere(entry, awaited);
}

void StageRun::note_if_everywhere(const autograd::Node& entry, const Awaited& awaited) {
  if (!awaited.gradient->is_done() || !awaited.elsewhere.empty()) return;
  std::shared_ptr<Future<Unit>> more;
  {
    MutexLock lock(mutex_);
    everywhere_.push_back(&entry);  // there is room
    more = std::exchange(more_, nullptr);
  }
  if (more != nullptr) more->complete(Unit{});
}

void StageRun::cancel() noexcept {
  is_over_ = true;
  line_.program->mesh().close_line(line_end_, over_);
  EachStep each;
  for (const auto& [entry, awaited] : awaited_) {
    if (!awaited.gradient->is_done()) each([&future = awaited.gradient, this] { fail_or_say_less(*future, over_); });
  }
  std::shared_ptr<Future<Unit>> more;
  {
    MutexLock lock(mutex_);
    more = std::exchange(more_, nullptr);
  }
  if (more != nullptr) each([&] { fail_or_say_less(*more, over_); });
}

void StageRun::forget(Program& program, const Id& pass) {
  Mesh::LineEnd end(name_of_line(pass));
  program.mesh().close_line(end, Error(Status::kCancelled, kOver));
}

}  // namespace distag::spmd
