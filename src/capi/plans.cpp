// Plans: how the tensors of a program lie on a mesh, by rules and what follows from them.

#include "spmd/plan.h"

#include <cstdlib>

#include "base/clock.h"
#include "capi/mesh.h"
#include "capi/struct_check.h"
#include "capi/text_copy.h"
#include "capi/value.h"

using namespace distag;
using namespace distag::capi;

struct distag_plan final : Handle {
  explicit distag_plan(spmd::Plan plan) : Handle(Kind::kPlan), plan_(std::move(plan)) {}
  const spmd::Plan& get() const { return plan_; }

 private:
  const spmd::Plan plan_;
};

template <>
struct distag::capi::KindOf<distag_plan> : std::integral_constant<Kind, Kind::kPlan> {};

namespace {

constexpr size_t kMostItems = size_t{1} << 20;  // leaves, and rules

// A variable of the environment: 0 or 1. Empty counts as not set.
bool read_switch(const char* name, bool usual) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return usual;
  const std::string value = text;
  if (value != "0" && value != "1") refuse(Status::kInvalidArgument, "{}=\"{}\" is neither 0 nor 1", name, value);
  return value == "1";
}

void check_count(size_t count, const char* name) {
  if (count > kMostItems) refuse(Status::kInvalidArgument, "{} is {}: at most {}", name, count, kMostItems);
}

Tensors read_roots(distag_tensor* const* roots, size_t count) {
  check_count(count, "root_count");
  check_array(roots, count, "roots");
  Tensors tensors;
  for (size_t i = 0; i < count; ++i) tensors.push_back(need_item(roots, i, "roots").tensor());
  return tensors;
}

std::vector<spmd::PlanLeaf> read_leaves(const distag_plan_options& options) {
  check_count(options.leaf_count, "leaf_count");
  check_array(options.names, options.leaf_count, "names");
  check_array(options.leaves, options.leaf_count, "leaves");
  std::vector<spmd::PlanLeaf> leaves;
  leaves.reserve(options.leaf_count);
  for (size_t i = 0; i < options.leaf_count; ++i) {
    const Tensor tensor = need_item(options.leaves, i, "leaves").tensor();
    leaves.push_back({need_text_item(options.names, i, "names"), tensor});
  }
  return leaves;
}

std::vector<spmd::PlanRule> read_rules(const distag_plan_options& options) {
  check_count(options.rule_count, "rule_count");
  check_array(options.patterns, options.rule_count, "patterns");
  check_array(options.specs, options.rule_count, "specs");
  std::vector<spmd::PlanRule> rules;
  rules.reserve(options.rule_count);
  for (size_t i = 0; i < options.rule_count; ++i) {
    rules.push_back({need_text_item(options.patterns, i, "patterns"), need_text_item(options.specs, i, "specs")});
  }
  return rules;
}

// Whether specs are searched for.
bool read_mode(const distag_plan_options& options, size_t root_count) {
  const bool is_automatic = read_switch("DISTAG_AUTO_SPMD", false);
  need_enumerator(options.mode, DISTAG_PLAN_AUTO, "mode", "DISTAG_PLAN_COMPLETE, _AUTO");
  if (options.mode == DISTAG_PLAN_AUTO && root_count == 0) {
    refuse(Status::kInvalidArgument, "mode is DISTAG_PLAN_AUTO, which needs the roots of a program");
  }
  return options.mode == DISTAG_PLAN_AUTO || (options.mode == 0 && is_automatic && root_count > 0);
}

// Reads what a search has to know besides the program.
void read_search(const distag_plan_options& options, const MeshShared& mesh, spmd::PlanSettings& settings) {
  if (options.costs != nullptr) {
    if (!settings.is_automatic) {
      refuse(Status::kInvalidArgument, "costs are of a search: set mode to DISTAG_PLAN_AUTO, or leave them out");
    }
    settings.costs = need_text(options.costs, "costs");
  }
  const Nanos timeout = need_timeout(options.timeout_ns, "timeout_ns");
  if (timeout != 0) {
    const Nanos end = deadline_after(SteadyClock().now(), timeout);
    settings.is_over = [end] { return time_left(end) == 0; };
  }
  const Mesh* const live = mesh.mesh();
  if (live == nullptr) return;
  settings.policy.bucket_bytes = live->policy().bucket_bytes;
  settings.policy.keeps_gathered = live->policy().keep_gathered;
  settings.policy.position = live->position();
  settings.policy.refuses_hidden = live->policy().hidden_moves == MeshPolicy::HiddenMoves::kRefuse;
}

}  // namespace

void distag_plan_retain(distag_plan* plan) { retain_handle(plan); }
void distag_plan_release(distag_plan* plan) { release_handle(plan); }

distag_status distag_plan_create(distag_mesh* mesh, distag_tensor* const* roots, size_t root_count,
                                 const distag_plan_options* options, distag_plan** out_plan, distag_error* err) {
  clear(out_plan);
  return guard(__func__, err, [=] {
    const distag_mesh& live = need(mesh, "mesh");
    need_pointer(out_plan, "out_plan");
    const distag_plan_options given = read_struct(options, "distag_plan_options");
    spmd::PlanSettings settings;
    settings.is_automatic = read_mode(given, root_count);
    read_search(given, *live.shared(), settings);
    settings.roots = read_roots(roots, root_count);
    settings.leaves = read_leaves(given);
    settings.rules = read_rules(given);
    if (given.saved != nullptr) settings.saved = need_text(given.saved, "saved");
    settings.is_inference = need_flag(given.inference, "inference");
    settings.optimizer_copies = given.optimizer_copies;
    settings.memory_bytes = given.memory_bytes;
    settings.source = given.source;
    *out_plan = new distag_plan(spmd::Plan(live.shared()->shape(), std::move(settings)));
  });
}

distag_status distag_plan_apply(distag_plan* plan, distag_mesh* line, distag_error* err) {
  return guard(__func__, err, [=] {
    check_present({plan, line}, {"plan", "line"});
    const distag_plan& live = need(plan, "plan");
    const distag_mesh& mesh = need(line, "line");
    const spmd::Line on = mesh.shared()->line(mesh.line_name());
    const bool together = read_switch("DISTAG_AUTO_USE_GROUP_SHARDING", true);
    check_can_wait();
    live.get().apply(on, together);
  });
}

const char* distag_plan_get_spec(distag_plan* plan, const char* name) {
  return guard_or<const char*>(nullptr, [=]() -> const char* {
    const distag_plan* live = peek(plan);
    return live == nullptr || name == nullptr ? nullptr : live->get().spec_of(name);
  });
}

distag_status distag_plan_copy_report(distag_plan* plan, char* buffer, size_t capacity, size_t* out_size,
                                      distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    const distag_plan& live = need(plan, "plan");
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    copy_text(live.get().report(), buffer, capacity, out_size);
  });
}
