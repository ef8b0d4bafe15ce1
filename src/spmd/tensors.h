#pragma once

#include <optional>
#include <string>

#include "spmd/sharding.h"

// Functions for sharded tensors other than ops. Each is collective on the line of its tensor, or on the given line. All
// throw INVALID_ARGUMENT for specs that do not fit.
namespace distag::spmd {

struct RedistributeOptions {
  bool with_gradient = false;  // the gradient is brought to `spec` too
  bool keep = false;           // a gathered parameter stays until backward
};
Tensor redistribute(const Tensor& x, const std::string& spec, RedistributeOptions options);

// A sharded tensor of which `local` is this member's part. Without a shape, its shape follows from all parts.
Tensor from_local(const Line& line, const Tensor& local, const std::string& spec, const std::optional<Dims>& shape,
                  const std::optional<std::string>& gradient_spec);
// This member's part, over the same memory.
Tensor to_local(const Tensor& x, const std::optional<std::string>& gradient_spec);
// All elements, without history; undefined if `position` is another member's. -1: on all members.
Tensor gather(const Tensor& x, int64_t position, Nanos timeout = 0);
// The same without waiting.
std::shared_ptr<Future<Tensor>> gather_async(const Tensor& x, int64_t position, Nanos timeout = 0);

// This member's part of the state that an optimizer keeps for a sharded parameter, without other members. A whole or
// deferred state is cut or made. A sharded state must lie as the parameter does, else INVALID_ARGUMENT. A state of
// another shape is given back.
Tensor part_of_state(const Tensor& parameter, const Tensor& state);

}  // namespace distag::spmd
