#pragma once

#include <cstdint>
#include <string>

#include "optim/parameter_places.h"
#include "rref/rrefs.h"

namespace distag {

// Parameters that are remote references.
class RrefPlaces final : public optim::ParameterPlaces {
 public:
  explicit RrefPlaces(const Rrefs& rrefs) : rrefs_(rrefs) {}

  std::string owner(const Value& parameter) override;
  uint64_t identity(const Value& parameter) override;
  Value resolve(const Value& parameter) override;
  Value find(const Value& parameter) override;

 private:
  std::shared_ptr<Rref> need_rref(const Value& parameter) const;

  const Rrefs& rrefs_;
};

}  // namespace distag
