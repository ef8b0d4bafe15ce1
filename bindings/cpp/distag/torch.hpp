// Modules of libtorch as ops of distag, so that a pass through several processes runs libtorch's autograd in each.
// Not part of distag.hpp: it needs libtorch (1.13 and newer).
#ifndef DISTAG_TORCH_HPP
#define DISTAG_TORCH_HPP

#include <ATen/DLConvertor.h>
#include <torch/autograd.h>

#include <distag.hpp>

namespace distag {

// The same memory as a tensor of libtorch, without history; not to be written, nor used by modules that work in place.
inline at::Tensor to_torch(const tensor& x) { return at::fromDLPack(x.to_legacy_dlpack(dlpack::share)); }

// The same memory as a tensor of distag, without history; it must not be written as long as that tensor exists.
inline tensor from_torch(const at::Tensor& x) { return tensor::from_dlpack(at::toDLPack(x.detach())); }

namespace detail {

// An application of a module: backward adds to the .grad of its parameters.
template <class Module>
struct torch_op {
  Module module;
  at::Tensor input, output;

  tensor forward(const tensor& x) {
    const at::AutoGradMode record(true);
    input = to_torch(x).requires_grad_(true);
    output = module(input);
    return from_torch(output);
  }
  tensor backward(const tensor& gradient) {
    output.backward(to_torch(gradient));
    return from_torch(input.grad());
  }
};

}  // namespace detail

// Applies a module, or any function of one at::Tensor. A distag pass through the result leaves the gradients of the
// module's parameters where libtorch has them; call zero_grad() before the next pass, also after one that failed.
template <class Module>
tensor apply_torch(Module module, const tensor& x) {
  tensor input = x;
  if (!x.requires_grad()) input = x.detach().requires_grad(true);  // the parameters want the pass in any case
  return apply_custom("torch", detail::torch_op<Module>{std::move(module), {}, {}}, input);
}

}  // namespace distag

#endif
