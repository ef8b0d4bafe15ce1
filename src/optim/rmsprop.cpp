// RMSprop (Hinton's lecture 6e, 2012), centered as in Graves 2013.
#include <cmath>

#include "optim/kernel.h"
#include "optim/rules.h"

namespace distag::optim {
namespace {

enum { kLr, kAlpha, kEps, kWeightDecay, kMomentum, kCentered, kMaximize };
constexpr Setting kSettings[] = {
    at_least_zero("lr", 1e-2),
    at_least_zero("alpha", 0.99),
    at_least_zero("eps", 1e-8),
    at_least_zero("weight_decay", 0.0),
    at_least_zero("momentum", 0.0),
    flag("centered"),
    flag("maximize"),
};
constexpr const char* kSlots[] = {"square_avg", "momentum_buffer", "grad_avg"};

uint32_t needed_slots(const Settings& settings) {
  return 1u | (settings.is_on(kMomentum) ? 2u : 0u) | (settings.is_on(kCentered) ? 4u : 0u);
}

// square = alpha square + (1 - alpha) d^2;  move = d / (sqrt(square - mean^2 if centered) + eps);
// p -= lr * (momentum ? buffer = momentum buffer + move : move)
template <typename T, bool kHasMomentum, bool kIsCentered>
struct Step {
  Decayed<T> decayed;
  T lr, alpha, rest, eps, momentum;

  DISTAG_INLINE void apply(T& p, T g, T& square, T& buffer, T& mean) const {
    T d = decayed(g, p);
    square = alpha * square + rest * (d * d);
    T variance = square;
    if constexpr (kIsCentered) {
      mean = alpha * mean + rest * d;
      variance -= mean * mean;
      // The variance of equal gradients is zero, and rounding must not make it negative.
      variance = variance < T{0} ? T{0} : variance;
    }
    T move = d / (std::sqrt(variance) + eps);
    if constexpr (kHasMomentum) {
      buffer = momentum * buffer + move;
      move = buffer;
    }
    p -= lr * move;
  }
};

void update(const Update& update) {
  const Settings& s = update.settings;
  dispatch_update(update, [&]<typename T>(T) {
    const auto run = [&]<bool kHasMomentum, bool kIsCentered>() {
      run_rows<T>(update, Step<T, kHasMomentum, kIsCentered>{make_decayed<T>(s, kMaximize, s[kWeightDecay]),
                                                             static_cast<T>(s[kLr]), static_cast<T>(s[kAlpha]),
                                                             static_cast<T>(1.0 - s[kAlpha]), static_cast<T>(s[kEps]),
                                                             static_cast<T>(s[kMomentum])});
    };
    if (s.is_on(kMomentum)) {
      s.is_on(kCentered) ? run.template operator()<true, true>() : run.template operator()<true, false>();
    } else {
      s.is_on(kCentered) ? run.template operator()<false, true>() : run.template operator()<false, false>();
    }
  });
}

}  // namespace

constexpr Rule kRmsprop{"rmsprop", kSettings, kSlots, needed_slots, nullptr, nullptr, update};

}  // namespace distag::optim
