// Stochastic gradient descent, with momentum (Sutskever et al. 2013) and weight decay.
#include "base/error.h"
#include "optim/kernel.h"
#include "optim/rules.h"

namespace distag::optim {
namespace {

enum { kLr, kMomentum, kDampening, kWeightDecay, kNesterov, kMaximize };
constexpr Setting kSettings[] = {
    at_least_zero("lr", 1e-3),
    at_least_zero("momentum", 0.0),
    {"dampening", 0.0, -kUnlimited, kUnlimited},
    at_least_zero("weight_decay", 0.0),
    flag("nesterov"),
    flag("maximize"),
};
constexpr const char* kSlots[] = {"momentum_buffer"};

uint32_t needed_slots(const Settings& settings) { return settings.is_on(kMomentum) ? 1 : 0; }

void check(const Settings& settings) {
  if (settings.is_on(kNesterov) && (!settings.is_on(kMomentum) || settings.is_on(kDampening))) {
    fail(Status::kInvalidState, "sgd: nesterov needs a momentum above 0 and a dampening of 0");
  }
}

// buffer = keep * buffer + add * d;  p -= lr * (nesterov ? d + momentum * buffer : buffer)
template <typename T, bool kHasMomentum, bool kIsNesterov>
struct Step {
  Decayed<T> decayed;
  T lr, momentum, keep, add;

  DISTAG_INLINE void apply(T& p, T g, T& buffer, T&, T&) const {
    T d = decayed(g, p);
    if constexpr (kHasMomentum) {
      buffer = keep * buffer + add * d;
      d = kIsNesterov ? d + momentum * buffer : buffer;
    }
    p -= lr * d;
  }
};

void update(const Update& update) {
  const Settings& s = update.settings;
  // The first buffer is the gradient itself, without dampening.
  const bool is_first = (update.fresh & 1) != 0;
  dispatch_update(update, [&]<typename T>(T) {
    const auto run = [&]<bool kHasMomentum, bool kIsNesterov>() {
      run_rows<T>(update, Step<T, kHasMomentum, kIsNesterov>{make_decayed<T>(s, kMaximize, s[kWeightDecay]),
                                                             static_cast<T>(s[kLr]), static_cast<T>(s[kMomentum]),
                                                             is_first ? T{0} : static_cast<T>(s[kMomentum]),
                                                             is_first ? T{1} : static_cast<T>(1.0 - s[kDampening])});
    };
    if (!s.is_on(kMomentum)) {
      run.template operator()<false, false>();
    } else if (!s.is_on(kNesterov)) {
      run.template operator()<true, false>();
    } else {
      run.template operator()<true, true>();
    }
  });
}

}  // namespace

constexpr Rule kSgd{"sgd", kSettings, kSlots, needed_slots, nullptr, check, update};

}  // namespace distag::optim
