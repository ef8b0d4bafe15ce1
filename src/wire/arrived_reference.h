#pragma once

#include <memory>

#include "wire/message.h"

namespace distag::wire {

// A reference in a received message.
struct ArrivedReference final : Reference {
  using Reference::Reference;

  // Not on the wire: the receiver's own object, kept while the message waits for memory.
  std::shared_ptr<ExternalValue> received;
};

}  // namespace distag::wire
