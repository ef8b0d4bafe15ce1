#pragma once

#include <string>
#include <vector>

#include "spmd/program.h"
#include "tensor/tensor.h"

namespace distag::spmd {

// Turns a plain tensor, in place, into a sharded one. Source -1: each member has all values and keeps its part; else
// that position's values are sent. Throws INVALID_STATE if the tensor has a history, or is sharded otherwise.
void mark_sharding(const Tensor& tensor, const Line& line, const std::string& spec, int64_t source);

// A leaf for mark_all().
struct Marking {
  std::string name;  // for people
  Tensor tensor;
  std::string spec;
};
// Marks several leaves in one call, all or none. A deferred leaf makes its part, whatever the source is. `what` is the
// text of the call. Together: values are sent in exchanges of up to 64 MiB, else one by one. If a member cannot make
// its part, all throw its error, and none is marked; if values do not come, the mesh ends.
void mark_all(const std::vector<Marking>& markings, const Line& line, const std::string& what, int64_t source,
              bool together);

}  // namespace distag::spmd
