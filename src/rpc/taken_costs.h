#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/loop_gate.h"
#include "base/task.h"
#include "group/shared.h"

namespace distag {

// The costs of the requests of one peer that were taken here, begun or dropped: "Credit" in schemas/calls.fbs; and the
// bytes of those that were not. Held by those.
class TakenCosts final : public std::enable_shared_from_this<TakenCosts> {
 public:
  TakenCosts(std::shared_ptr<GroupShared> group, Incarnation peer) : group_(std::move(group)), peer_(peer) {}

  uint64_t total() const { return total_.load(); }

  // On the loop: a request has come, which holds `bytes` until it is taken; and the bytes of all of them.
  void note_come(uint64_t bytes) { not_taken_ += bytes; }
  uint64_t not_taken() const { return not_taken_.load(); }

  // Any thread. Where the peer waits for it, it is told through the gate.
  void add(LoopGate& gate, uint64_t cost) noexcept;
  void add(LoopGate& gate, uint64_t cost, uint64_t bytes) noexcept {
    not_taken_ -= bytes;
    add(gate, cost);
  }
  // On the loop: tells it once it is so much.
  void on_wanted(uint64_t total);

 private:
  bool begin_telling();
  void tell();

  const std::shared_ptr<GroupShared> group_;
  const Incarnation peer_;
  std::atomic<uint64_t> total_{0};
  std::atomic<uint64_t> not_taken_{0};
  std::atomic<uint64_t> wanted_{0};      // 0: the peer does not wait
  std::atomic<bool> is_telling_{false};  // the place is in use
  TaskPlace place_;
};

}  // namespace distag
