// Rprop (Riedmiller, Braun 1993): uses only the signs of gradients.
#include "base/error.h"
#include "optim/kernel.h"
#include "optim/rules.h"

namespace distag::optim {
namespace {

enum { kLr, kEtaMinus, kEtaPlus, kStepSizeMin, kStepSizeMax, kMaximize };
constexpr Setting kSettings[] = {
    at_least_zero("lr", 1e-2),
    fraction("etaminus", 0.5),
    {"etaplus", 1.2, 1.0, kUnlimited},
    at_least_zero("step_size_min", 1e-6),
    at_least_zero("step_size_max", 50.0),
    flag("maximize"),
};
constexpr const char* kSlots[] = {"prev", "step_size"};

uint32_t needed_slots(const Settings&) { return 3; }
double initial_of_slot(const Settings& settings, size_t slot) { return slot == 1 ? settings[kLr] : 0.0; }

void check(const Settings& settings) {
  if (settings[kStepSizeMin] > settings[kStepSizeMax]) {
    fail(Status::kInvalidState, "rprop: step_size_min {} is above step_size_max {}", settings[kStepSizeMin],
         settings[kStepSizeMax]);
  }
}

// The step size grows while the gradient keeps its sign. When the sign changes, the step size shrinks and the element
// stays.
template <typename T>
struct Step {
  Decayed<T> decayed;
  T shrink, grow, smallest, largest;

  DISTAG_INLINE void apply(T& p, T g, T& previous, T& size, T&) const {
    T d = decayed(g, p);
    T product = d * previous;
    T moved = size * (product > T{0} ? grow : product < T{0} ? shrink : T{1});
    moved = moved < smallest ? smallest : moved;
    moved = moved > largest ? largest : moved;
    d = product < T{0} ? T{0} : d;
    p -= (d > T{0} ? T{1} : d < T{0} ? T{-1} : d) * moved;
    size = moved;
    previous = d;
  }
};

void update(const Update& update) {
  const Settings& s = update.settings;
  dispatch_update(update, [&]<typename T>(T) {
    run_rows<T>(update,
                Step<T>{make_decayed<T>(s, kMaximize, 0.0), static_cast<T>(s[kEtaMinus]), static_cast<T>(s[kEtaPlus]),
                        static_cast<T>(s[kStepSizeMin]), static_cast<T>(s[kStepSizeMax])});
  });
}

}  // namespace

constexpr Rule kRprop{"rprop", kSettings, kSlots, needed_slots, initial_of_slot, check, update};

}  // namespace distag::optim
