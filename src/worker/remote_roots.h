#pragma once

#include <memory>
#include <vector>

#include "autograd/context.h"
#include "base/future.h"
#include "tensor/value.h"

namespace distag {

// Roots of a backward pass on other workers. Each is fetched in the context of the pass, so the pass reaches it through
// that call.
using RootFetches = std::vector<std::shared_ptr<Future<Value>>>;

// Both begin the pass with these roots and the fetched ones, when all of those have come; the timeout counts from now.
// Fails with the failure of a fetch, or INVALID_ARGUMENT for a value that is no tensor.
void backward(Context& context, Tensors roots, const RootFetches& fetches, BackwardOptions options);  // blocks
std::shared_ptr<Future<Value>> backward_async(std::shared_ptr<Context> context, Tensors roots, RootFetches fetches,
                                              BackwardOptions options);

}  // namespace distag
