#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/loop_gate.h"
#include "base/task.h"
#include "group/shared.h"

namespace distag {

// The total cost of one peer's requests that were taken here, begun or dropped ("Credit" in schemas/calls.fbs), and the
// bytes of those not taken yet. The requests not taken hold it.
class TakenCosts final : public std::enable_shared_from_this<TakenCosts> {
 public:
  TakenCosts(std::shared_ptr<GroupShared> group, Incarnation peer) : group_(std::move(group)), peer_(peer) {}

  uint64_t total() const { return total_.load(); }

  // On the loop. note_come(): a request has come, which holds `bytes` until it is taken. not_taken(): the sum of such
  // bytes.
  void note_come(uint64_t bytes) { not_taken_ += bytes; }
  uint64_t not_taken() const { return not_taken_.load(); }

  // Any thread. If the peer waits for the total, the gate runs a task that reports it.
  void add(LoopGate& gate, uint64_t cost) noexcept;
  void add(LoopGate& gate, uint64_t cost, uint64_t bytes) noexcept {
    not_taken_ -= bytes;
    add(gate, cost);
  }
  // On the loop: reports to the peer once the total is reached.
  void on_wanted(uint64_t total);

 private:
  bool begin_telling();
  void tell();

  const std::shared_ptr<GroupShared> group_;
  const Incarnation peer_;
  std::atomic<uint64_t> total_{0};
  std::atomic<uint64_t> not_taken_{0};
  std::atomic<uint64_t> wanted_{0};      // 0: the peer does not wait
  std::atomic<bool> is_telling_{false};  // place_ is in use
  TaskPlace place_;
};

}  // namespace distag
