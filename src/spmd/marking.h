#pragma once

#include <string>
#include <vector>

#include "spmd/program.h"
#include "tensor/tensor.h"

namespace distag::spmd {

// Turns a plain tensor, in place, into a sharded one. Source -1: each member has all of it and keeps its part; else
// that position's values are sent. Throws INVALID_STATE for one that has a history, or lies otherwise.
void mark_sharding(const Tensor& tensor, const Line& line, const std::string& spec, int64_t source);

// One of several that are marked by one call.
struct Marking {
  std::string name;  // for people
  Tensor tensor;
  std::string spec;
};
// The same for several, of which none is sharded where one cannot be. A deferred one makes its part, whatever the
// source. `what` is the text of the call. Together: values are sent in exchanges of up to 64 MiB, else one by one.
// Where a member cannot make its part, all throw that, and none is marked; where values do not come, the mesh ends.
void mark_all(const std::vector<Marking>& markings, const Line& line, const std::string& what, int64_t source,
              bool together);

}  // namespace distag::spmd
