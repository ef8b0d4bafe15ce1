#pragma once

#include "ops/dispatch.h"
#include "ops/simd.h"
#include "optim/settings.h"

namespace distag::optim {

// A pass over a parameter, its gradient and its slots. `Step` holds the constants of the step, and its apply(p, g, a,
// b, c) moves one element. Slots that apply() does not name are not accessed.
template <typename Step, typename T>
struct UpdateRow {
  DISTAG_INLINE static void run(T* p, const T* g, T* a, T* b, T* c, const Step* step, int64_t count) {
    const Step constants = *step;
    DISTAG_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) constants.apply(p[i], g[i], a[i], b[i], c[i]);
  }
};

template <typename T, typename Step>
void run_rows(const Update& update, const Step& step) {
  auto slot = [&update](size_t index) { return static_cast<T*>(update.slots[index]); };
  ops::simd::run<UpdateRow<Step, T>, T*, const T*, T*, T*, T*, const Step*, int64_t>(
      static_cast<T*>(update.parameter), static_cast<const T*>(update.gradient), slot(0), slot(1), slot(2), &step,
      update.count);
}

// Calls visit with a value of the parameter's element type.
template <typename Visit>
void dispatch_update(const Update& update, Visit visit) {
  ops::dispatch_floating(update.settings.rule().name, update.dtype, visit);
}

// The gradient that a rule uses: negated to maximize, with the weight decay added.
template <typename T>
struct Decayed {
  T sign;
  T weight_decay;
  DISTAG_INLINE T operator()(T g, T p) const { return sign * g + weight_decay * p; }
};

template <typename T>
Decayed<T> make_decayed(const Settings& settings, size_t maximize, double weight_decay) {
  return {settings.is_on(maximize) ? T{-1} : T{1}, static_cast<T>(weight_decay)};
}

}  // namespace distag::optim
