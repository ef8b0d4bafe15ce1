#pragma once

#include <string>
#include <vector>

#include "optim/rule.h"
#include "tensor/value.h"

namespace distag::optim {

// The settings of one optimizer, in the order of its rule's table. A value type.
class Settings {
 public:
  explicit Settings(const Rule& rule);

  const Rule& rule() const { return *rule_; }
  double operator[](size_t index) const { return values_[index]; }
  bool is_on(size_t index) const { return values_[index] != 0.0; }
  // Throws NOT_FOUND, which lists the existing settings, or INVALID_ARGUMENT, which names the range.
  void set(const std::string& name, double value);

  // Convert to a map and back. load() throws INVALID_ARGUMENT or NOT_FOUND, and changes nothing, when `saved` does not
  // fit.
  Value save() const;
  void load(const Value& saved);

 private:
  const Rule* rule_;
  std::vector<double> values_;
};

}  // namespace distag::optim
