#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/future.h"
#include "base/loop.h"
#include "coll/fold.h"
#include "coll/mesh_state.h"
#include "tensor/value.h"

namespace distag {

class Mesh;

// A call of a mesh that waits for parts of other members. On the loop.
//
// A collective goes from step to step by exchange() and work(), and ends once: by complete(), or by give_up(), after
// which nothing that comes for it has an effect.
struct OpenCollective : std::enable_shared_from_this<OpenCollective> {
  // A piece that is to come from a member: `open_dim` of the shape is not known.
  struct Expected {
    Dtype dtype;
    Dims shape;
    size_t open_dim = kMaxRank;
  };
  struct Exchange {
    std::map<int64_t, std::vector<Expected>> expected;  // by position, as long as it has not come
    std::map<int64_t, Tensors> came;
    UniqueFunction<void(std::map<int64_t, Tensors>)> then;
  };

  std::shared_ptr<Mesh> mesh;
  std::string line;
  uint64_t number = 0;
  uint64_t hash = 0;
  std::string text;
  Nanos begun = 0;
  Nanos timeout = kForever;
  Nanos deadline = kNever;
  Loop::TimerId timer = 0;  // until the missing members are asked, or the deadline
  bool is_over = false;
  std::shared_ptr<Future<Tensor>> future;
  std::map<uint32_t, Exchange> exchanges;
  bool is_counted = true;
  uint64_t bytes_held = 0;                 // bytes of pieces that came
  std::optional<MeshSnapshot::Move> move;  // for a call that sends something

  // Step `part`: sends to members, waits for what is expected of members, and calls `then` with all of that; this
  // member's piece is in `outgoing` as well.
  void exchange(uint32_t part, std::map<int64_t, Tensors> outgoing, std::map<int64_t, std::vector<Expected>> expected,
                UniqueFunction<void(std::map<int64_t, Tensors>)> then);
  // Makes tensors, on the executor if `bytes` take long, and calls `then` on the loop.
  void work(size_t bytes, UniqueFunction<Tensors()> make, UniqueFunction<void(Tensors)> then);
  void reduce(Reduction reduction, std::vector<Operand> operands, UniqueFunction<void(Tensor)> then);
  // Takes the pieces of a member for a step that has begun. Throws Violation for pieces it does not expect, or has
  // already.
  void take(uint32_t part, int64_t from, const Values& pieces);
  void complete(Tensor result);
  void fail_alone(Error error);  // ends the mesh
  void send(uint32_t part, const std::map<int64_t, Tensors>& outgoing);
  void take_early(uint32_t part);
  // The positions of the members that have yet to send something.
  std::vector<int64_t> missing() const;

  // Ends the call in another way than by its result, which may be on its way.
  void give_up(const Error& why);
  void stop_timer();
  void trace(Status status) const;
};

}  // namespace distag
