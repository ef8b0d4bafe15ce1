#pragma once

#include "coll/mesh.h"

namespace distag {

// The last part of a move: boxes go from member to member, and what each takes becomes its new shard, which completes
// the call. Large boxes go in pieces, round after round, so a member has its old and its new shard and the pieces of a
// round or two in memory. How a box is cut follows from the box and the mesh alone, so both sides know it. `first` is
// the part of the call of the first round.
void move_boxes(OpenCollective& open, uint32_t first, const layout::Move& move, const Dims& shape, const Tensor& shard,
                MeshStats& stats);

// The approximate bytes of all pieces that a member takes in a round.
inline constexpr int64_t kMoveRound = int64_t{16} << 20;
// Limits a box of any size to about four times that many pieces.
inline constexpr uint32_t kMostMovePieces = 1024;

}  // namespace distag
