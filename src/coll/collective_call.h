#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "coll/fold.h"
#include "layout/move.h"

namespace distag {

// The numbers are those of distag_collective_kind.
enum class CollectiveKind : int32_t {
  kAllReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllToAll = 4,
  kBroadcast = 5,
  kReduce = 6,
  kPermute = 7,
  kScatter = 8,  // for the library itself: piece i of the root goes to member i
};

// A collective of a plain tensor among the members that differ along `axes` only.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  layout::Axes axes;
  Tensor tensor;
  Reduction reduction = Reduction::kSum;
  int64_t dim = 0;
  int64_t dim_to = 0;
  int64_t root = 0;              // a position among those that take part
  int64_t shift = 0;             // for a permute: to the member that many positions on
  std::string line;              // empty: the mesh itself
  Nanos timeout = 0;             // 0: that of the mesh
  Nanos time_left = 0;           // of it; 0: all
  std::string within;            // the call of the host of which this is a step; empty: this is that call
  bool sizes_differ = false;     // between members of different groups
  bool is_word_of_pass = false;  // between members, for a pass: not counted as communication of the program
  Tensors pieces = {};           // for a scatter, at its root; `tensor` says what the others get
  bool waits_for_room = false;   // if too many calls are under way; else it fails with OVERLOADED
};

// Gives a sharded tensor another spec, with the same values.
struct RedistributeCall {
  Dims shape;  // shape of the whole
  Tensor shard;
  layout::Spec from;
  layout::Spec to;
  std::string line;
  Nanos timeout = 0;
  std::string within;       // as above
  bool is_bounded = false;  // fails with OVERLOADED if too many calls are under way
  Nanos time_left = 0;      // as above
};

}  // namespace distag
