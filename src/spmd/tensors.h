#pragma once

#include <optional>
#include <string>

#include "spmd/sharding.h"

// The functions for sharded tensors beside ops. Each is collective on the line of its tensor, or the one given. All
// throw INVALID_ARGUMENT for specs that do not fit.
namespace distag::spmd {

struct RedistributeOptions {
  bool with_gradient = false;  // the gradient is brought to the spec too
  bool keep = false;           // a gathered parameter stays until its backward
};
Tensor redistribute(const Tensor& x, const std::string& spec, RedistributeOptions options);

// A sharded tensor of which `local` is this member's part; without a shape that of what the parts make up.
Tensor from_local(const Line& line, const Tensor& local, const std::string& spec, const std::optional<Dims>& shape,
                  const std::optional<std::string>& gradient_spec);
// This member's part, over the same memory.
Tensor to_local(const Tensor& x, const std::optional<std::string>& gradient_spec);
// All of it, without history; undefined where `position` is another member's. -1: on all.
Tensor gather(const Tensor& x, int64_t position, Nanos timeout = 0);
// The same without waiting.
std::shared_ptr<Future<Tensor>> gather_async(const Tensor& x, int64_t position, Nanos timeout = 0);

// Of what an optimizer kept of a sharded parameter this member's part, by this member alone: of one that is whole, or
// deferred, it is cut or made; of one that is sharded it has to lie as the parameter does, else INVALID_ARGUMENT. One
// of another shape is given back.
Tensor part_of_state(const Tensor& parameter, const Tensor& state);

}  // namespace distag::spmd
