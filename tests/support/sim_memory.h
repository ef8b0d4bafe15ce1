#pragma once

#include <cstddef>
#include <cstdint>

namespace distag::sim {

// The memory of one worker: the allocations that its tasks ask for are counted, and some are refused. A program that
// refuses any is linked with tests/sim/operator_new.cpp. One thread.
class SimMemory {
 public:
  // From now on grants `given` allocations, then refuses `count`.
  void refuse(uint64_t given, uint64_t count) {
    given_ = given;
    refusals_left_ = count;
  }
  uint64_t refused() const { return refused_; }

  // False: it is refused.
  bool ask() {
    if (refusals_left_ == 0) return true;
    if (given_ > 0) {
      --given_;
      return true;
    }
    --refusals_left_;
    ++refused_;
    return false;
  }

 private:
  uint64_t given_ = 0;
  uint64_t refusals_left_ = 0;
  uint64_t refused_ = 0;
};

// The memory that the calling thread uses. nullptr: that of the simulator, which is never short.
SimMemory* exchange_memory(SimMemory* memory);
SimMemory* current_memory();

class MemoryScope {
 public:
  explicit MemoryScope(SimMemory* memory) : before_(exchange_memory(memory)) {}
  ~MemoryScope() { exchange_memory(before_); }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  SimMemory* const before_;
};

}  // namespace distag::sim
