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
  number_items(roots);
  hash_all();
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
           "roots[{}], {}, {}: run the program once with inputs of DISTAG_INIT_SHAPE, and give its results", i,
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

void TracedProgram::number_items(std::span<const Tensor> roots) {
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
  for (const Tensor& root : roots) {
    const ShapeOnly* shape = ShapeOnly::of(root);
    root_items_.push_back(outputs.at(shape->maker().get()) + shape->output());
  }
}

void TracedProgram::hash_all() {
  Fingerprint fingerprint;
  fingerprint.add(leaves_.size()).add(items_.size()).add(steps_.size()).add(root_items_.size());
  for (const Item& item : items_) fingerprint.add(dtype_name(item.dtype)).add(to_string(item.shape));
  for (const Tensor& leaf : leaves_) {
    fingerprint.add(uint64_t{autograd::requires_grad(leaf)}).add(uint64_t{autograd::has_history(leaf)});
  }
  for (const Step& step : steps_) {
    std::span<const size_t> inputs(step.inputs);
    while (!inputs.empty() && inputs.back() == kNone) inputs = inputs.first(inputs.size() - 1);
    fingerprint.add(key_of(step.op->op(), step.op->attributes())).add(uint64_t{step.op->is_recorded()});
    fingerprint.add(inputs.size()).add(step.op->shapes().size());
    for (const size_t input : inputs) fingerprint.add(input);
  }
  for (const size_t root : root_items_) fingerprint.add(root);
  hash_ = fingerprint.value();
}

}  // namespace distag::spmd
