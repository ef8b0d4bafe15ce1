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
  bool is_open = false;  // the range is without `highest`

  bool allows(double value) const;
};

constexpr double kUnlimited = 1e300;

constexpr Setting at_least_zero(const char* name, double initial) { return {name, initial, 0.0, kUnlimited}; }
constexpr Setting fraction(const char* name, double initial) { return {name, initial, 0.0, 1.0, false, true}; }
constexpr Setting flag(const char* name) { return {name, 0.0, 0.0, 1.0, true}; }

inline constexpr size_t kMaxSlots = 3;

// One parameter's turn in a step: all arrays are row-major, of one dtype, and `count` long.
struct Update {
  Dtype dtype;
  void* parameter;
  const void* gradient;
  std::array<void*, kMaxSlots> slots;  // the parameter itself where the rule did not ask for one
  uint32_t fresh;                      // slots that were made in this step, as bits
  int64_t count;
  int64_t step;  // of this parameter, from 1
  const Settings& settings;
};

// An optimizer: what it may be told, what it keeps of each parameter, and how it moves one. The rules and their
// defaults are PyTorch's.
struct Rule {
  const char* name;
  std::span<const Setting> settings;
  // Names of the arrays kept for each parameter, of its dtype and shape.
  std::span<const char* const> slots;
  // Which of them these settings need, as bits.
  uint32_t (*needed_slots)(const Settings& settings);
  // The number that fills a fresh one; nullptr: zeros.
  double (*initial_of_slot)(const Settings& settings, size_t slot);
  // Throws INVALID_STATE for settings that do not go together; nullptr: all do.
  void (*check)(const Settings& settings);
  void (*update)(const Update& update);
};

}  // namespace distag::optim
