#pragma once

#include "coll/mesh.h"

namespace distag {

// Throws INVALID_ARGUMENT for arguments that do not fit, equally on all members.
void check_collective(const layout::MeshShape& mesh, const CollectiveCall& call);
// "all_reduce(float32[2, 3], sum, axes 'x')", and its fingerprint.
std::string describe(const layout::MeshShape& mesh, const CollectiveCall& call);
uint64_t fingerprint_of(const CollectiveCall& call);

// Both begin the first step, and complete the open call at the end.
void run_collective(OpenCollective& open, const CollectiveCall& call, MeshStats& stats);
void run_move(OpenCollective& open, const layout::Move& move, const Dims& shape, const Tensor& shard, MeshStats& stats);

}  // namespace distag
