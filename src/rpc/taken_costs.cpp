#include "rpc/taken_costs.h"

#include <new>

#include "base/each_step.h"

namespace distag {
namespace {

constexpr Nanos kTellAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

// Either add() sees the wanted total, or on_wanted() sees the sum.
void TakenCosts::add(LoopGate& gate, uint64_t cost) noexcept {
  if (cost == 0) return;
  total_ += cost;
  if (!begin_telling()) return;
  EachStep each;
  each([this, &gate] { gate.run(place_, [self = shared_from_this()] { self->tell(); }); });
}

void TakenCosts::on_wanted(uint64_t total) {
  assert_on_loop(group_->loop);
  wanted_.store(total);
  if (begin_telling()) tell();
}

bool TakenCosts::begin_telling() {
  const uint64_t wanted = wanted_.load();
  return wanted != 0 && total_.load() >= wanted && !is_telling_.exchange(true);
}

// The peer may have asked for a higher total meanwhile.
void TakenCosts::tell() {
  assert_on_loop(group_->loop);
  do {
    const uint64_t total = total_.load();
    try {
      if (group_->session != nullptr) group_->session->send(peer_, wire::Credit{total});
    } catch (const std::bad_alloc&) {
      group_->loop.start_timer(place_, group_->loop.now() + kTellAgain, [self = shared_from_this()] { self->tell(); });
      return;
    } catch (const Error&) {
      // The peer is gone.
    }
    if (wanted_.load() <= total) wanted_.store(0);
    is_telling_.store(false);
  } while (begin_telling());
}

}  // namespace distag
