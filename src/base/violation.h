#pragma once

#include <string>
#include <utility>

#include "base/error.h"

namespace distag {

// A message that no correct worker ever sends, whatever the other workers do. The only error that ends a peer; see
// "Three verdicts" in schemas/session.fbs. Not for a late message, nor for a local shortage.
class Violation final : public Error {
 public:
  explicit Violation(std::string message) : Error(Status::kProtocol, std::move(message)) {}
};

template <typename... Args>
[[noreturn]] void violation(fmt::format_string<Args...> text, Args&&... args) {
  throw Violation(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace distag
