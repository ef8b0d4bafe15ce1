#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace distag::optim {

class Settings;

// A number that the host may change between steps; flags are 0 or 1.
struct Setting {
  const char* name;
  double initial;
  double lowest;
  double highest;
  bool is_flag = false;
  bool is_open = false;  // the range excludes `highest`

  bool allows(double value) const;
};

constexpr double kUnlimited = 1e300;

constexpr Setting at_least_zero(const char* name, double initial) { return {name, initial, 0.0, kUnlimited}; }
constexpr Setting fraction(const char* name, double initial) { return {name, initial, 0.0, 1.0, false, true}; }
constexpr Setting flag(const char* name) { return {name, 0.0, 0.0, 1.0, true}; }

inline constexpr size_t kMaxSlots = 3;

// The update of one parameter in a step. All arrays are row-major, of one dtype, and have `count` elements.
struct Update {
  Dtype dtype;
  void* parameter;
  const void* gradient;
  std::array<void*, kMaxSlots> slots;  // the parameter itself for slots that the rule does not need
  uint32_t fresh;                      // bit mask of the slots that were made in this step
  int64_t count;
  int64_t step;  // step number of this parameter, from 1
  const Settings& settings;
};

// An optimizer: its settings, its state for each parameter, and its update. The rules and their defaults are those of
// PyTorch.
struct Rule {
  const char* name;
  std::span<const Setting> settings;
  // Names of the arrays kept for each parameter, of its dtype and shape.
  std::span<const char* const> slots;
  // Bit mask of the slots that these settings need.
  uint32_t (*needed_slots)(const Settings& settings);
  // The initial value of a fresh slot; nullptr: zeros.
  double (*initial_of_slot)(const Settings& settings, size_t slot);
  // Throws INVALID_STATE for settings that conflict; nullptr: none do.
  void (*check)(const Settings& settings);
  void (*update)(const Update& update);
};

}  // namespace distag::optim
