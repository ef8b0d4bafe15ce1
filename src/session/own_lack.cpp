#include "session/own_lack.h"

#include "base/each_step.h"

namespace distag {

void OwnLack::note(const Error& why, Nanos now) noexcept {
  if (!is_there(now)) since_ = now;
  last_ = now;
  is_over_ = false;
  EachStep each;  // without memory for the words the older ones stay
  each([this, &why] { error_ = why; });
}

}  // namespace distag
