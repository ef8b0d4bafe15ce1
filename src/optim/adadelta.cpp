// Adadelta (Zeiler 2012).
#include <cmath>

#include "optim/kernel.h"
#include "optim/rules.h"

namespace distag::optim {
namespace {

enum { kLr, kRho, kEps, kWeightDecay, kMaximize };
constexpr Setting kSettings[] = {
    at_least_zero("lr", 1.0),           {"rho", 0.9, 0.0, 1.0}, at_least_zero("eps", 1e-6),
    at_least_zero("weight_decay", 0.0), flag("maximize"),
};
constexpr const char* kSlots[] = {"square_avg", "acc_delta"};

uint32_t needed_slots(const Settings&) { return 3; }

// square = rho square + (1 - rho) d^2;  move = sqrt(moved + eps) / sqrt(square + eps) * d;
// moved = rho moved + (1 - rho) move^2;  p -= lr * move
template <typename T>
struct Step {
  Decayed<T> decayed;
  T lr, rho, rest, eps;

  DISTAG_INLINE void apply(T& p, T g, T& square, T& moved, T&) const {
    T d = decayed(g, p);
    square = rho * square + rest * (d * d);
    T move = std::sqrt(moved + eps) / std::sqrt(square + eps) * d;
    moved = rho * moved + rest * (move * move);
    p -= lr * move;
  }
};

void update(const Update& update) {
  const Settings& s = update.settings;
  dispatch_update(update, [&]<typename T>(T) {
    run_rows<T>(update, Step<T>{make_decayed<T>(s, kMaximize, s[kWeightDecay]), static_cast<T>(s[kLr]),
                                static_cast<T>(s[kRho]), static_cast<T>(1.0 - s[kRho]), static_cast<T>(s[kEps])});
  });
}

}  // namespace

constexpr Rule kAdadelta{"adadelta", kSettings, kSlots, needed_slots, nullptr, nullptr, update};

}  // namespace distag::optim
