// Compares the tensors that ops keep for a backward pass with those that plans expect.
#include "spmd/kept_tensors.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "ops/samples.h"

namespace distag::testing {
namespace {

using spmd::KeptTensors;

bool wants_gradients(const ops::Op& op, const Tensors& inputs, uint64_t needed) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool can = inputs[i] && is_floating(inputs[i].dtype()) && (op.constant >> i & 1) == 0;
    if ((needed >> i & 1) != 0 && !can) return false;
  }
  return op.backward != nullptr;
}

struct Seen {
  KeptTensors kept;
  bool has_as_large = false;
};

// The tensors that an application keeps.
Seen kept_by(const ops::Op& op, const Tensors& inputs, const ops::Attributes& attributes, uint64_t needed) {
  ops::Saved saved;
  saved.needed = needed;
  const Tensors outputs = op.forward(inputs, attributes, &saved);
  Seen seen;
  for (const Tensor& tensor : saved.tensors) {
    if (!tensor) continue;
    bool is_input = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i] || inputs[i].buffer().get() != tensor.buffer().get()) continue;
      is_input = true;
      seen.kept.inputs |= uint64_t{1} << i;
    }
    if (is_input) continue;
    seen.kept.is_own = seen.kept.is_own || tensor.buffer().get() == outputs[0].buffer().get();
    const int64_t large = is_floating(tensor.dtype()) ? inputs[0].count() : outputs[0].count();
    seen.has_as_large = seen.has_as_large || tensor.count() == large;
  }
  return seen;
}

// An op copies some layouts, and keeps the copy: over all its samples it keeps every tensor that the table names. A
// tensor of the size of the first input, or indices of the size of the result, are its own if each sample has them.
TEST(KeptTensors, AreThoseThatOpsKeep) {
  std::map<std::pair<std::string, uint64_t>, Seen> all;
  for (const Sample& sample : gradient_samples()) {
    const ops::Op& op = *ops::find_op(sample.op);
    for (uint64_t needed = 1; needed < uint64_t{1} << std::min<size_t>(sample.inputs.size(), 5); ++needed) {
      Tensors inputs;
      for (const Tensor& input : sample.inputs) inputs.push_back(input ? input.clone() : Tensor());
      if (!wants_gradients(op, inputs, needed)) continue;
      const Seen seen = kept_by(op, inputs, sample.attributes, needed);
      Seen& sum = all.try_emplace({sample.op, needed}, seen).first->second;
      sum.kept.inputs |= seen.kept.inputs;
      sum.kept.is_own = sum.kept.is_own || seen.kept.is_own;
      sum.has_as_large = sum.has_as_large && seen.has_as_large;
    }
  }
  EXPECT_GT(all.size(), 100u);
  for (const auto& [call, seen] : all) {
    const KeptTensors said = spmd::kept_tensors(call.first, call.second);
    EXPECT_EQ(said.inputs, seen.kept.inputs) << call.first << " with " << call.second;
    EXPECT_EQ(said.is_own, seen.kept.is_own || seen.has_as_large) << call.first << " with " << call.second;
  }
}

}  // namespace
}  // namespace distag::testing
