// Plans: how the tensors of a program lie on a mesh, by rules on their names.
#ifndef DISTAG_PLAN_HPP
#define DISTAG_PLAN_HPP

#include <string>
#include <utility>
#include <vector>

#include "mesh.hpp"

namespace distag {

// See distag_plan_options. Leaves by name; a rule is a pattern and a spec, and the first rule that fits counts.
struct plan_options {
  std::vector<std::pair<std::string, tensor>> leaves;
  std::vector<std::pair<std::string, std::string>> rules;
  std::vector<tensor> roots;       // of a program on shapes: leaves without a rule get the spec that follows for them
  std::string saved;               // the report of a former plan, in the place of rules
  std::int64_t source = 0;         // the position whose values all get; -1: each keeps its part of its own
  std::uint64_t memory_bytes = 0;  // of each member; 0: no limit
  std::uint32_t optimizer_copies = 0;
  bool inference = false;
};

// Immutable. Nothing is sent until apply().
class plan : public detail::handle<distag_plan, distag_plan_retain, distag_plan_release> {
 public:
  plan() noexcept = default;
  explicit plan(const mesh& on, const plan_options& options, outcome err = {}) {
    std::vector<const char*> names, patterns, specs;
    std::vector<distag_tensor*> leaves, roots;
    for (const auto& leaf : options.leaves) {
      names.push_back(leaf.first.c_str());
      leaves.push_back(leaf.second.get());
    }
    for (const auto& rule : options.rules) {
      patterns.push_back(rule.first.c_str());
      specs.push_back(rule.second.c_str());
    }
    for (const tensor& root : options.roots) roots.push_back(root.get());
    distag_plan_options raw = DISTAG_PLAN_OPTIONS_INIT;
    raw.inference = options.inference ? 1 : 0;
    raw.optimizer_copies = options.optimizer_copies;
    raw.memory_bytes = options.memory_bytes;
    raw.source = options.source;
    raw.names = names.data();
    raw.leaves = leaves.data();
    raw.leaf_count = leaves.size();
    raw.patterns = patterns.data();
    raw.specs = specs.data();
    raw.rule_count = specs.size();
    raw.saved = options.saved.empty() ? nullptr : options.saved.c_str();
    err.check(distag_plan_create(on.get(), roots.data(), roots.size(), &raw, put(), err.raw()));
  }

  // Marks the leaves, in place, in one exchange. Members compare their plans. Collective. Blocks.
  void apply(const mesh& line, outcome err = {}) const { err.check(distag_plan_apply(get(), line.get(), err.raw())); }
  // The spec of a leaf; empty if there is no leaf of that name.
  std::string spec(text name) const {
    const char* const found = distag_plan_get_spec(get(), name.c_str());
    return found == nullptr ? std::string() : std::string(found);
  }
  // The plan in JSON. Equal arguments give equal texts.
  std::string report(outcome err = {}) const {
    return detail::copy_text(
        [&](char* buffer, std::size_t capacity, std::size_t* size, distag_error* error) {
          return distag_plan_copy_report(get(), buffer, capacity, size, error);
        },
        err);
  }
};

}  // namespace distag

#endif
