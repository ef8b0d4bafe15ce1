#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/future.h"

namespace distag {

// A future whose operation cancel() names by this text.
template <typename T>
std::shared_ptr<Future<T>> make_named(std::string operation) {
  struct Named {
    explicit Named(std::string text) : operation(std::move(text)) {}
    const std::string operation;
    Future<T> future;
  };
  const auto named = std::make_shared<Named>(std::move(operation));
  named->future.set_operation([](const void* text) { return *static_cast<const std::string*>(text); },
                              &named->operation);
  return {named, &named->future};
}

}  // namespace distag
