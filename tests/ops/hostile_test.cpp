// A peer may call any op with anything: whatever it gives, the op answers or fails with an Error. Run with sanitizers.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "ops/attributes.h"
#include "ops/op.h"
#include "support/tensors.h"

// Memory that no machine has is an answer here, no defect.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace distag::testing {
namespace {

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t bound) { return random_.next() % bound; }

  // Either beyond what any address space holds, or so small that a test run does not notice.
  int64_t integer() {
    constexpr int64_t kInteresting[] = {INT64_MIN,        INT64_MIN + 1,    -(int64_t{1} << 40),
                                        int64_t{1} << 47, int64_t{1} << 62, INT64_MAX};
    return below(8) == 0 ? kInteresting[below(std::size(kInteresting))] : static_cast<int64_t>(below(9)) - 3;
  }

  double number() {
    constexpr double kInteresting[] = {0.0, -0.0, 0.5, 1e300, -1e300, INFINITY, NAN, 9007199254740993.0};
    return below(2) == 0 ? kInteresting[below(std::size(kInteresting))] : static_cast<double>(below(9)) - 3;
  }

  Dims dims() {
    Dims result;
    bool is_pair = below(2) == 0;
    for (uint64_t i = is_pair ? 2 : below(5); i > 0; --i) {
      result.push_back(is_pair ? static_cast<int64_t>(below(4)) : integer());
    }
    return result;
  }

  Dims shape() {
    Dims result;
    for (uint64_t i = below(2) == 0 ? 4 : below(5); i > 0; --i) result.push_back(static_cast<int64_t>(below(5)));
    return result;
  }

  // Like the first input in most of its dims, since strangers seldom fit each other.
  Dims shape_like(const Dims& first) {
    Dims result = first;
    if (!result.empty() && below(2) == 0) {
      int64_t* gone = result.begin() + below(result.size());
      std::copy(gone + 1, result.end(), gone);
      result.pop_back();
    }
    if (!result.empty() && below(2) == 0) result[below(result.size())] = static_cast<int64_t>(below(4));
    return result;
  }

  Tensor tensor(const Dims& shape) {
    auto dtype = static_cast<Dtype>(1 + below(4));
    Tensor x = Tensor::empty(dtype, shape);
    std::byte* bytes = x.mutable_data();
    size_t item_size = dtype_size(dtype);
    for (size_t i = 0; i < x.byte_size(); ++i) {
      // Floats of all kinds; of an integer only the lowest byte, so that it may be an index.
      bool is_low = i % item_size == 0;
      bytes[i] = static_cast<std::byte>(is_floating(dtype) ? below(256) : is_low ? below(4) : 0);
    }
    return below(3) == 0 ? with_gaps(x) : x;
  }

  Value attribute(ops::AttributeKind kind) {
    static constexpr const char* kTexts[] = {"mean", "sum", "none", "float32", "float64", "int64", "bool", "", "x"};
    if (below(15) == 0) return Value();
    switch (kind) {
      case ops::AttributeKind::kInt64:
        return Value(integer());
      case ops::AttributeKind::kFloat64:
        return Value(number());
      case ops::AttributeKind::kBool:
        return Value(below(2) == 0);
      case ops::AttributeKind::kText:
        return Value::text(kTexts[below(std::size(kTexts))]);
      case ops::AttributeKind::kInt64List:
        return ops::Setting("", dims()).value();
      case ops::AttributeKind::kDtype:
        return below(2) == 0 ? Value(integer()) : Value::text(kTexts[below(std::size(kTexts))]);
    }
    return Value();
  }

 private:
  SeededRandom random_;
};

Tensors some_inputs(Generator& generator, const ops::Signature& signature) {
  uint64_t most = std::min<uint64_t>(signature.max_inputs(), 4);
  uint64_t count = signature.min_inputs() + generator.below(most - signature.min_inputs() + 1);
  Tensors inputs;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t kind = generator.below(6);
    if (kind == 0) {
      inputs.push_back(generator.below(3) == 0 ? Tensor() : generator.tensor(generator.shape()));
    } else if (i == 0 || !inputs[0]) {
      inputs.push_back(generator.tensor(generator.shape()));
    } else {
      inputs.push_back(kind == 1 ? inputs[0] : generator.tensor(generator.shape_like(inputs[0].shape())));
    }
  }
  return inputs;
}

ops::Attributes some_attributes(Generator& generator, const ops::Signature& signature) {
  ops::Attributes attributes;
  for (size_t i = 0; i < signature.attribute_count(); ++i) {
    const auto& declared = signature.attribute(i);
    if (!declared.is_required && generator.below(3) == 0) continue;
    attributes.emplace_back(declared.name, generator.attribute(declared.kind));
  }
  return attributes;
}

// Whether the op took what it got.
bool apply_both_ways(Generator& generator, const ops::Op& op) {
  Tensors inputs = some_inputs(generator, op.arguments);
  ops::Attributes attributes = some_attributes(generator, op.arguments);
  try {
    ops::check_arguments(op, inputs, attributes);
    ops::Saved saved;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] && is_floating(inputs[i].dtype())) saved.needed |= uint64_t{1} << i;
    }
    Tensors outputs = op.forward(inputs, attributes, saved.needed != 0 ? &saved : nullptr);
    if (op.backward == nullptr || saved.needed == 0) return true;
    Tensors seeds;
    for (const Tensor& output : outputs) seeds.push_back(output.clone());
    for (const Tensor& gradient : op.backward(saved, std::move(seeds))) {
      if (gradient) gradient.contiguous();
    }
  } catch (const Error&) {
    return false;
  }
  return true;
}

TEST(HostileTest, EveryOpAnswersOrFails) {
  constexpr int kRuns = 1000;
  for (const ops::Op* op : ops::builtins()) {
    SCOPED_TRACE(op->name);
    int taken = 0;
    for (uint64_t seed = 0; seed < kRuns; ++seed) {
      Generator generator(seed);
      taken += apply_both_ways(generator, *op) ? 1 : 0;
    }

    EXPECT_LT(taken, kRuns);
  }
}

}  // namespace
}  // namespace distag::testing
