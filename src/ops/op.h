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

// Named settings of one application, as distag_apply takes them, sorted by name; a missing setting has the default of
// the signature. Checked against the signature before forward runs: unknown names are NOT_FOUND, wrong kinds
// INVALID_ARGUMENT. Made and read with attributes.h.
using Attributes = distag::Attributes;

using Inputs = std::span<const Tensor>;

// The state that one application keeps for its backward: snapshots of tensors, and numbers.
struct Saved {
  Tensors tensors;
  Attributes attributes;
  std::vector<Dims> shapes;
  std::vector<Dtype> dtypes;
  uint64_t needed = 0;  // bit i: input i needs a gradient
  bool needs(size_t input) const { return input >= 64 || ((needed >> input) & 1) != 0; }
};

// A built-in op: one contiguous block in some .cpp of this folder, listed in builtins.h. Made with make_op().
struct Op {
  // "linear(tensor x, tensor weight, tensor? bias) -> tensor", attributes as "int64 dim = -1". It binds the inputs and
  // attributes, checks their kinds, and documents them. "tensor..." takes any number; "tensor?" may be undefined or, at
  // the end, left out.
  const char* signature;
  // A sentence for users: shapes and formula, in terms of the signature.
  const char* summary = "";

  // Computes the outputs, without history. With `saved` (whose `needed` is set) it stores there what backward needs.
  // Throws INVALID_ARGUMENT naming op, shapes and dtypes; UNSUPPORTED for a dtype.
  Tensors (*forward)(Inputs inputs, const Attributes& attributes, Saved* saved);

  // Computes the gradient of each input (undefined if not needed or zero) from the gradients of the outputs, some of
  // which may be undefined. Owns output_gradients: exclusive buffers may be reused. Its results may be views, or have
  // strides of 0. nullptr: not differentiable.
  Tensors (*backward)(const Saved& saved, Tensors output_gradients) = nullptr;

  // The same, added to `sums`, the gradients of the inputs from other ops (undefined if there are none). The results
  // include them, with the bits that accumulate() would give, in fewer passes over memory. Owns both. nullptr: the
  // engine adds.
  Tensors (*backward_onto)(const Saved& saved, Tensors output_gradients, Tensors sums) = nullptr;

  // Whether its outputs may be views of its first input (which shares storage).
  bool is_view = false;
  // Cheap for small tensors: elementwise, no BLAS. May run on a loop when all tensors are at most 64 KiB.
  bool is_cheap = false;
  // The gradient of each input takes separate work, mostly products: computing some of them (`needed`) first and the
  // others later takes no longer.
  bool is_separable = false;
  // The op is one pass over memory with little arithmetic: up to 1 MiB takes no longer than waking another thread for
  // it.
  bool is_one_pass = false;
  // Bit i: input i is not differentiated. The op is refused if that input requires grad: a gradient that is never
  // computed would be taken for zero.
  uint32_t constant = 0;

  Signature arguments = Signature(signature);
  const char* name = arguments.op_name();  // may be replaced
};

// The flags of Op of the same names.
enum Trait : unsigned { kNoTrait = 0, kView = 1, kCheap = 2, kSeparable = 4, kOnePass = 8 };

// Adapts Made::forward and Made::backward to the functions of an op. They may return one tensor for a list of one, and
// backward may take only the gradient of the first output: then it is called only if there is one.
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

// An op made of the static functions of Made: forward, and backward and backward_onto if it has them.
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

// All built-in ops, in a fixed order.
std::span<const Op* const> builtins();
// nullptr if no op has that name.
const Op* find_op(std::string_view name);

inline const Signature& signature_of(const Op& op) { return op.arguments; }

// Checks inputs and attributes against the signature. Throws NOT_FOUND, INVALID_ARGUMENT.
void check_arguments(const Op& op, Inputs inputs, const Attributes& attributes);

// Throws INVALID_ARGUMENT if `needed`, the inputs that require grad, has an input that the op does not differentiate.
void check_needed(const Op& op, uint64_t needed);

// into += x, in place if `into` is exclusive, else in a new tensor. Same shape and dtype; an undefined side is zero.
// Engines add gradients with this.
Tensor accumulate(Tensor into, Tensor x);

// In-place writes of the C API. assign(): `source` is cast and broadcast. add_scaled(): target += scale * source,
// likewise.
void assign(Tensor& target, const Tensor& source);
void add_scaled(Tensor& target, const Tensor& source, double scale);

}  // namespace distag::ops
