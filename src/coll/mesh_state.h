#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "wire/message.h"

namespace distag {

// The rules of a mesh for its tensors; the same on all members.
struct MeshPolicy {
  // The numbers are those of distag_hidden_moves.
  enum class HiddenMoves : int32_t { kAllow = 1, kLog = 2, kRefuse = 3 };

  HiddenMoves hidden_moves = HiddenMoves::kAllow;
  bool keep_gathered = false;
  bool check_replicas = false;
  uint64_t bucket_bytes = uint64_t{25} << 20;
};

// A number that any thread reads and adds to.
class Count {
 public:
  Count() = default;
  Count(const Count& other) : value_(other) {}
  Count& operator=(const Count& other) { return *this = uint64_t{other}; }
  Count& operator=(uint64_t value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  operator uint64_t() const { return value_.load(std::memory_order_relaxed); }
  Count& operator+=(uint64_t more) {
    value_.fetch_add(more, std::memory_order_relaxed);
    return *this;
  }
  Count& operator-=(uint64_t less) {
    value_.fetch_sub(less, std::memory_order_relaxed);
    return *this;
  }
  Count& operator++() { return *this += 1; }
  Count& operator--() { return *this -= 1; }

 private:
  std::atomic<uint64_t> value_{0};
};

// The work of this worker on a mesh, all lines together. Collectives count if they sent something.
struct MeshStats {
  Count calls;
  Count all_reduces;
  Count all_gathers;
  Count reduce_scatters;
  Count all_to_alls;
  Count broadcasts;
  Count moves;
  Count hidden_moves;
  Count parts_sent;
  Count bytes_sent;  // bytes of elements, to other members
  Count bytes_received;
  Count bytes_held;  // bytes of pieces of the calls under way
  Count bytes_held_max;
  Count plan_misses;
  Count open;  // calls under way

  void hold(uint64_t bytes) {
    bytes_held += bytes;
    if (bytes_held > bytes_held_max) bytes_held_max = bytes_held;
  }
};

// The memory that a waiting part takes.
inline uint64_t held_by(const wire::Part& part) {
  uint64_t bytes = 256;
  for (const Value& piece : part.pieces) bytes += 256 + piece.as_tensor().byte_size();
  return bytes;
}

// A mesh at one moment, as one member has it.
struct MeshSnapshot {
  // A call that sent something, and why.
  struct Move {
    std::string op;
    std::string specs;
    std::string kind;
    std::string axes;
    uint64_t bytes = 0;  // sent
    std::string why;
  };
  struct OpenCall {
    uint64_t number = 0;
    std::string text;
    Nanos age = 0;
    std::vector<int64_t> waits_for;  // positions
  };
  struct Line {
    std::string name;
    uint64_t last = 0;  // number of the last call here
    std::string text;   // the text of that call
    std::vector<OpenCall> open;
    std::map<int64_t, uint64_t> known;  // for other members, by position: their latest call that is known here
  };

  std::optional<Error> ended;
  std::vector<Line> lines;
  std::deque<Move> moves;  // the last ones
};

// A collective that has begun here and not ended, for the report of the worker.
struct WaitingCollective {
  std::string mesh;
  std::string line;
  std::string text;
  Nanos age = 0;
  std::vector<int32_t> waits_for;  // ranks
};

}  // namespace distag
