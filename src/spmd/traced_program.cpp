#include "spmd/traced_program.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "coll/line.h"
#include "spmd/op_key.h"

namespace distag::spmd {

TracedProgram::TracedProgram(std::span<const Tensor> roots) : roots_(roots.begin(), roots.end()) {
  find_steps(roots);
  number_items();
  hash_all(roots);
}

void TracedProgram::find_steps(std::span<const Tensor> roots) {
  std::unordered_set<const TracedOp*> found;
  std::vector<const TracedOp*> left;
  const auto reach = [&](const TracedOp* op) {
    if (op != nullptr && found.insert(op).second) left.push_back(op);
  };
  for (size_t i = 0; i < roots.size(); ++i) {
    const ShapeOnly* root = ShapeOnly::of(roots[i]);
    if (root == nullptr || root->maker() == nullptr) {
      fail(Status::kInvalidArgument,
           "root {}, {}, {}: run the program once with inputs of DISTAG_INIT_SHAPE, and give its results", i,
           describe(roots[i]), root == nullptr ? "has elements" : "is no result of an op");
    }
    reach(root->maker().get());
  }
  while (!left.empty()) {
    const TracedOp* op = left.back();
    left.pop_back();
    steps_.push_back({op, {}, 0});
    for (const TracedInput& input : op->inputs()) reach(input.maker.get());
  }
  std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) { return a.op->number() < b.op->number(); });
}

void TracedProgram::number_items() {
  std::unordered_map<uint64_t, size_t> leaves;
  std::unordered_map<const TracedOp*, size_t> outputs;
  for (const Step& step : steps_) {
    for (const TracedInput& input : step.op->inputs()) {
      if (!input.leaf || !leaves.emplace(input.leaf.id(), leaves_.size()).second) continue;
      leaves_.push_back(input.leaf);
      items_.push_back({input.leaf.dtype(), input.leaf.shape()});
    }
  }
  for (Step& step : steps_) {
    step.first_output = items_.size();
    outputs.emplace(step.op, step.first_output);
    for (size_t i = 0; i < step.op->shapes().size(); ++i) {
      items_.push_back({step.op->dtypes()[i], step.op->shapes()[i]});
    }
  }
  for (Step& step : steps_) {
    for (const TracedInput& input : step.op->inputs()) {
      step.inputs.push_back(input.maker != nullptr ? outputs.at(input.maker.get()) + input.output
                            : input.leaf           ? leaves.at(input.leaf.id())
                                                   : kNone);
    }
  }
}

void TracedProgram::hash_all(std::span<const Tensor> roots) {
  Fingerprint fingerprint;
  fingerprint.add(leaves_.size()).add(items_.size()).add(steps_.size()).add(roots.size());
  for (const Item& item : items_) fingerprint.add(dtype_name(item.dtype)).add(to_string(item.shape));
  for (const Tensor& leaf : leaves_) {
    fingerprint.add(uint64_t{autograd::requires_grad(leaf)}).add(uint64_t{autograd::has_history(leaf)});
  }
  std::unordered_map<const TracedOp*, size_t> outputs;
  for (const Step& step : steps_) {
    std::string key = step.op->op().name;
    add_attributes(key, step.op->attributes());
    fingerprint.add(key).add(step.inputs.size()).add(step.op->shapes().size());
    for (const size_t input : step.inputs) fingerprint.add(input);
    outputs.emplace(step.op, step.first_output);
  }
  for (const Tensor& root : roots) {
    const ShapeOnly* shape = ShapeOnly::of(root);
    fingerprint.add(outputs.at(shape->maker().get()) + shape->output());
  }
  hash_ = fingerprint.value();
}

}  // namespace distag::spmd
