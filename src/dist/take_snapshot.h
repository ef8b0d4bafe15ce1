#pragma once

#include "dist/dist_context.h"
#include "dist/shared.h"
#include "dist/snapshot.h"

namespace distag {

// The facts that a report tells of a context, but for its sends; and the sends, oldest first. On the loop.
ContextSnapshot take_snapshot(const DistShared& shared, const DistContext& context);
void add_sends(ContextSnapshot& snapshot, const DistShared& shared, const DistContext& context);

}  // namespace distag
