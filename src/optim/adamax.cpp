// Adamax: Adam with the infinity norm (Kingma, Ba 2015).
#include <cmath>

#include "optim/kernel.h"
#include "optim/rules.h"

namespace distag::optim {
namespace {

enum { kLr, kBeta1, kBeta2, kEps, kWeightDecay, kMaximize };
constexpr Setting kSettings[] = {
    at_least_zero("lr", 2e-3),          fraction("beta1", 0.9), fraction("beta2", 0.999), at_least_zero("eps", 1e-8),
    at_least_zero("weight_decay", 0.0), flag("maximize"),
};
constexpr const char* kSlots[] = {"exp_avg", "exp_inf"};

uint32_t needed_slots(const Settings&) { return 3; }

// m = beta1 m + (1 - beta1) d;  u = max(beta2 u, |d| + eps);  p -= rate * m / u
template <typename T>
struct Step {
  Decayed<T> decayed;
  T rate, beta1, rest1, beta2, eps;

  DISTAG_INLINE void apply(T& p, T g, T& m, T& u, T&) const {
    T d = decayed(g, p);
    m = beta1 * m + rest1 * d;
    T old = beta2 * u;
    T fresh = std::fabs(d) + eps;
    u = old > fresh ? old : fresh;
    p -= rate * (m / u);
  }
};

void update(const Update& update) {
  const Settings& s = update.settings;
  const double rate = s[kLr] / (1.0 - std::pow(s[kBeta1], static_cast<double>(update.step)));
  dispatch_update(update, [&]<typename T>(T) {
    run_rows<T>(update,
                Step<T>{make_decayed<T>(s, kMaximize, s[kWeightDecay]), static_cast<T>(rate), static_cast<T>(s[kBeta1]),
                        static_cast<T>(1.0 - s[kBeta1]), static_cast<T>(s[kBeta2]), static_cast<T>(s[kEps])});
  });
}

}  // namespace

constexpr Rule kAdamax{"adamax", kSettings, kSlots, needed_slots, nullptr, nullptr, update};

}  // namespace distag::optim
