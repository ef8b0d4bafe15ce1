#pragma once

#include <memory>

#include "wire/message.h"

namespace distag::wire {

// A reference in a message that has come.
struct ArrivedReference final : Reference {
  using Reference::Reference;

  // Not of the wire: what its receiver has made of it, while the message waits for memory.
  std::shared_ptr<ExternalValue> received;
};

}  // namespace distag::wire
