// Stochastic gradient descent, with momentum (Sutskever et al. 2013) and weight decay.
#include <bit>
#include <cstdint>
#include <type_traits>

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

// p -= lr * g. When few rows of a large table were looked up, the gradient is zero nearly everywhere; parameters whose
// gradient block is zero are not even read.
template <typename T>
struct PlainRow {
  DISTAG_INLINE static void run(T* p, const T* g, T lr, int64_t count) {
    constexpr int64_t kBlock = 512 / sizeof(T);
    int64_t begin = 0;
    for (; count - begin >= kBlock; begin += kBlock) {
      if (has_any<kBlock>(g + begin)) step(p + begin, g + begin, lr, kBlock);
    }
    step(p + begin, g + begin, lr, count - begin);
  }

 private:
  // Compares bits, so that -0 counts as nonzero: p - lr * +0 is p for every p and finite lr.
  template <int64_t kCount>
  DISTAG_INLINE static bool has_any(const T* g) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    Bits all = 0;
    for (int64_t i = 0; i < kCount; ++i) all |= std::bit_cast<Bits>(g[i]);
    return all != 0;
  }
  DISTAG_INLINE static void step(T* p, const T* g, T lr, int64_t count) {
    DISTAG_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) p[i] -= lr * g[i];
  }
};

template <typename T>
void run_plain(const Update& update) {
  ops::simd::run<PlainRow<T>, T*, const T*, T, int64_t>(static_cast<T*>(update.parameter),
                                                        static_cast<const T*>(update.gradient),
                                                        static_cast<T>(update.settings[kLr]), update.count);
}

void update(const Update& update) {
  const Settings& s = update.settings;
  // The first buffer is the gradient itself, without dampening.
  const bool is_first = (update.fresh & 1) != 0;
  dispatch_update(update, [&]<typename T>(T) {
    if (!s.is_on(kMomentum) && !s.is_on(kWeightDecay) && !s.is_on(kMaximize)) return run_plain<T>(update);
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
