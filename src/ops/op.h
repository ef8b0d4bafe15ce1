#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/signature.h"
#include "tensor/attributes.h"

namespace distag::ops {

// Named settings of one application, as distag_apply takes them, sorted by name; what is not there has the default of
// the signature. Checked against the signature before forward runs: unknown names are NOT_FOUND, wrong kinds
// INVALID_ARGUMENT. Made and read with attributes.h.
using Attributes = distag::Attributes;

using Inputs = std::span<const Tensor>;

// State that one application keeps for its backward: snapshots of tensors, and the numbers it needs.
struct Saved {
  Tensors tensors;
  Attributes attributes;
  std::vector<Dims> shapes;
  std::vector<Dtype> dtypes;
  uint64_t needed = 0;  // bit i: input i wants a gradient
  bool needs(size_t input) const { return input >= 64 || ((needed >> input) & 1) != 0; }
};

// A built-in op: one contiguous block in some .cpp of this folder, listed in builtins.h. Made with make_op().
struct Op {
  // "linear(tensor x, tensor weight, tensor? bias) -> tensor", attributes as "int64 dim = -1"; what binds the inputs
  // and attributes, checks their kinds, and tells people. "tensor..." takes any number, "tensor?" may be undefined or,
  // at the end, left out.
  const char* signature;
  // One sentence for people: shapes and formula, in terms of the signature.
  const char* summary = "";

  // Computes the outputs; knows nothing of history. With `saved` (whose `needed` is set) it leaves there what backward
  // needs. Throws INVALID_ARGUMENT naming op, shapes and dtypes; UNSUPPORTED for a dtype.
  Tensors (*forward)(Inputs inputs, const Attributes& attributes, Saved* saved);

  // The gradient of each input (undefined where it is not needed or zero) from that of each output, of which some may
  // be undefined. Owns output_gradients: buffers without another holder may be reused. Its results may be views, or
  // have strides of 0. nullptr: not differentiable.
  Tensors (*backward)(const Saved& saved, Tensors output_gradients) = nullptr;

  // The same, added to what has come for each input from elsewhere, undefined where nothing has, which the results then
  // contain: with the bits that accumulate() would give, and fewer passes over memory. Owns both. nullptr: the engine
  // adds.
  Tensors (*backward_onto)(const Saved& saved, Tensors output_gradients, Tensors sums) = nullptr;

  // Whether its outputs may be views of its first input (which shares storage).
  bool is_view = false;
  // Cheap for small tensors: elementwise, no BLAS. May run on a loop when all tensors are at most 64 KiB.
  bool is_cheap = false;
  // The gradient of each input takes work of its own, most of it products: backward of some of them (`needed`) first
  // and of the others later takes no longer.
  bool is_separable = false;
  // One pass over memory, with hardly any arithmetic: up to 1 MiB takes no longer than to wake another thread for it.
  bool is_one_pass = false;
  // Bit i: input i is not differentiated. It is refused where it requires grad: a gradient that is never given would
  // pass for zero.
  uint32_t constant = 0;

  Signature arguments = Signature(signature);
  const char* name = arguments.op_name();  // or another one
};

// Of an op what the flags of Op of the same name say.
enum Trait : unsigned { kNoTrait = 0, kView = 1, kCheap = 2, kSeparable = 4, kOnePass = 8 };

// What Made::forward and Made::backward are as functions of an op. They may give one tensor for a list of one, and
// backward may take the gradient of the first output alone: then it is called only where there is one.
template <typename Made>
struct OpFunctions {
  static Tensors forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    return listed(Made::forward(inputs, attributes, saved));
  }
  static Tensors backward(const Saved& saved, Tensors gradients) {
    if constexpr (requires { Made::backward(saved, Tensor()); }) {
      if (!gradients[0]) return {};
      if constexpr (std::is_same_v<decltype(Made::backward(saved, Tensor())), Tensor>) {
        gradients[0] = Made::backward(saved, std::move(gradients[0]));
        gradients.resize(1);
        return gradients;
      } else {
        return Made::backward(saved, std::move(gradients[0]));
      }
    } else {
      return listed(Made::backward(saved, std::move(gradients)));
    }
  }

 private:
  static Tensors listed(Tensors list) { return list; }
  static Tensors listed(Tensor x) {
    Tensors list;
    list.push_back(std::move(x));
    return list;
  }
};

// An op of the static functions of Made: forward, and where it has them backward and backward_onto.
template <typename Made>
constexpr Op make_op(const char* signature, const char* summary, unsigned traits = kNoTrait, uint32_t constant = 0) {
  Tensors (*backward)(const Saved&, Tensors) = nullptr;
  if constexpr (requires { &Made::backward; }) backward = OpFunctions<Made>::backward;
  Tensors (*backward_onto)(const Saved&, Tensors, Tensors) = nullptr;
  if constexpr (requires { &Made::backward_onto; }) backward_onto = Made::backward_onto;
  return {.signature = signature,
          .summary = summary,
          .forward = OpFunctions<Made>::forward,
          .backward = backward,
          .backward_onto = backward_onto,
          .is_view = (traits & kView) != 0,
          .is_cheap = (traits & kCheap) != 0,
          .is_separable = (traits & kSeparable) != 0,
          .is_one_pass = (traits & kOnePass) != 0,
          .constant = constant};
}

// All of them, in a fixed order.
std::span<const Op* const> builtins();
// nullptr when no op has that name.
const Op* find_op(std::string_view name);

inline const Signature& signature_of(const Op& op) { return op.arguments; }

// Checks inputs and attributes against the signature. Throws NOT_FOUND, INVALID_ARGUMENT.
void check_arguments(const Op& op, Inputs inputs, const Attributes& attributes);

// Throws INVALID_ARGUMENT where an input that the op does not differentiate is among `needed`, those that require grad.
void check_needed(const Op& op, uint64_t needed);

// into += x, in place when `into` is exclusive, else in a new tensor. Same shape and dtype; an undefined side is zero.
// Engines add gradients with this.
Tensor accumulate(Tensor into, Tensor x);

// In-place writes of the C API: values of `source` cast and broadcast; target += scale * source, likewise.
void assign(Tensor& target, const Tensor& source);
void add_scaled(Tensor& target, const Tensor& source, double scale);

}  // namespace distag::ops
