#pragma once

#include <memory>

#include "base/future.h"
#include "base/loop.h"

namespace distag {

// Fails a completion at `deadline` with what `make_error` gives then, unless it is done before. Any thread; does
// nothing once the loop is stopping.
void set_deadline(Loop& loop, const std::shared_ptr<Completion>& completion, Nanos deadline,
                  UniqueFunction<Error()> make_error);

}  // namespace distag
