// Adagrad (Duchi, Hazan, Singer 2011).
#include <cmath>

#include "optim/kernel.h"
#include "optim/rules.h"

namespace distag::optim {
namespace {

enum { kLr, kLrDecay, kWeightDecay, kInitialAccumulatorValue, kEps, kMaximize };
constexpr Setting kSettings[] = {
    at_least_zero("lr", 1e-2),          at_least_zero("lr_decay", 0.0),
    at_least_zero("weight_decay", 0.0), at_least_zero("initial_accumulator_value", 0.0),
    at_least_zero("eps", 1e-10),        flag("maximize"),
};
constexpr const char* kSlots[] = {"sum"};

uint32_t needed_slots(const Settings&) { return 1; }
double initial_of_slot(const Settings& settings, size_t) { return settings[kInitialAccumulatorValue]; }

// sum += d^2;  p -= rate * d / (sqrt(sum) + eps)
template <typename T>
struct Step {
  Decayed<T> decayed;
  T rate, eps;

  DISTAG_INLINE void apply(T& p, T g, T& sum, T&, T&) const {
    T d = decayed(g, p);
    sum += d * d;
    p -= rate * d / (std::sqrt(sum) + eps);
  }
};

void update(const Update& update) {
  const Settings& s = update.settings;
  const double rate = s[kLr] / (1.0 + static_cast<double>(update.step - 1) * s[kLrDecay]);
  dispatch_update(update, [&]<typename T>(T) {
    run_rows<T>(update,
                Step<T>{make_decayed<T>(s, kMaximize, s[kWeightDecay]), static_cast<T>(rate), static_cast<T>(s[kEps])});
  });
}

}  // namespace

constexpr Rule kAdagrad{"adagrad", kSettings, kSlots, needed_slots, initial_of_slot, nullptr, update};

}  // namespace distag::optim
