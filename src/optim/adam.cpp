// Adam (Kingma, Ba 2015) with amsgrad (Reddi, Kale, Kumar 2018), and AdamW, which keeps the weight decay apart from the
// moments (Loshchilov, Hutter 2019).
#include <cmath>

#include "optim/kernel.h"
#include "optim/rules.h"

namespace distag::optim {
namespace {

enum { kLr, kBeta1, kBeta2, kEps, kWeightDecay, kAmsgrad, kMaximize };

constexpr Setting kAdamSettings[] = {
    at_least_zero("lr", 1e-3),          fraction("beta1", 0.9), fraction("beta2", 0.999), at_least_zero("eps", 1e-8),
    at_least_zero("weight_decay", 0.0), flag("amsgrad"),        flag("maximize"),
};
constexpr Setting kAdamwSettings[] = {
    at_least_zero("lr", 1e-3),           fraction("beta1", 0.9), fraction("beta2", 0.999), at_least_zero("eps", 1e-8),
    at_least_zero("weight_decay", 1e-2), flag("amsgrad"),        flag("maximize"),
};
constexpr const char* kSlots[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

uint32_t needed_slots(const Settings& settings) { return settings.is_on(kAmsgrad) ? 7 : 3; }

// m = beta1 m + (1 - beta1) d;  v = beta2 v + (1 - beta2) d^2;  p -= rate * m / (sqrt(v or its maximum) / root + eps)
template <typename T, bool kIsAmsgrad>
struct Step {
  Decayed<T> decayed;
  T keep;  // factor for the parameter itself
  T beta1, rest1, beta2, rest2, rate, root, eps;

  DISTAG_INLINE void apply(T& p, T g, T& m, T& v, T& v_max) const {
    T d = decayed(g, p);
    m = beta1 * m + rest1 * d;
    v = beta2 * v + rest2 * (d * d);
    T second = v;
    if constexpr (kIsAmsgrad) {
      v_max = v_max > v ? v_max : v;
      second = v_max;
    }
    p = keep * p - rate * (m / (std::sqrt(second) / root + eps));
  }
};

// `coupled` decay goes through the moments, `apart` shrinks the parameter.
void update_with(const Update& update, double coupled, double apart) {
  const Settings& s = update.settings;
  const auto step = static_cast<double>(update.step);
  const double rate = s[kLr] / (1.0 - std::pow(s[kBeta1], step));
  const double root = std::sqrt(1.0 - std::pow(s[kBeta2], step));
  dispatch_update(update, [&]<typename T>(T) {
    const auto run = [&]<bool kIsAmsgrad>() {
      run_rows<T>(update,
                  Step<T, kIsAmsgrad>{make_decayed<T>(s, kMaximize, coupled), static_cast<T>(1.0 - s[kLr] * apart),
                                      static_cast<T>(s[kBeta1]), static_cast<T>(1.0 - s[kBeta1]),
                                      static_cast<T>(s[kBeta2]), static_cast<T>(1.0 - s[kBeta2]), static_cast<T>(rate),
                                      static_cast<T>(root), static_cast<T>(s[kEps])});
    };
    if (s.is_on(kAmsgrad)) {
      run.template operator()<true>();
    } else {
      run.template operator()<false>();
    }
  });
}

void update_adam(const Update& update) { update_with(update, update.settings[kWeightDecay], 0.0); }
void update_adamw(const Update& update) { update_with(update, 0.0, update.settings[kWeightDecay]); }

}  // namespace

constexpr Rule kAdam{"adam", kAdamSettings, kSlots, needed_slots, nullptr, nullptr, update_adam};
constexpr Rule kAdamw{"adamw", kAdamwSettings, kSlots, needed_slots, nullptr, nullptr, update_adamw};

}  // namespace distag::optim
