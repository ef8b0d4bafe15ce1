#pragma once

#include "base/ids.h"

namespace distag {

// The contexts that all members of a mesh share have ids that each of them knows without a message: the mesh's id, and
// a number that counts them. Their creator is the worker that numbered the mesh, its member of the lowest rank. Other
// contexts have counters without the top bit.
inline constexpr uint64_t kJointBit = uint64_t{1} << 63;
inline constexpr uint64_t kMostMeshes = uint64_t{1} << 31;  // for one worker, in such ids
inline constexpr uint64_t kMostJointContexts = uint64_t{1} << 32;

inline bool is_joint(const Id& context) { return (context.counter & kJointBit) != 0; }

inline Id joint_context_id(const Id& mesh, uint64_t number) {
  return {mesh.maker, kJointBit | (mesh.counter << 32) | number};
}

inline Id mesh_of_joint(const Id& context) { return {context.maker, (context.counter & ~kJointBit) >> 32}; }

inline uint64_t number_of_joint(const Id& context) { return context.counter & (kMostJointContexts - 1); }

// For people: the creator's rank, bit 47, the mesh, the number.
inline uint64_t number_for_people(const Id& context, int32_t creator_rank) {
  constexpr uint64_t kMask = (uint64_t{1} << 48) - 1;
  const uint64_t counter = is_joint(context) ? context.counter | (uint64_t{1} << 47) : context.counter;
  return (static_cast<uint64_t>(static_cast<uint16_t>(creator_rank)) << 48) | (counter & kMask);
}

}  // namespace distag
