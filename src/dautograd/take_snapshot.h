#pragma once

#include "dautograd/distributed_context.h"
#include "dautograd/shared.h"
#include "dautograd/snapshot.h"

namespace distag {

// The facts that a report tells of a context, but for its sends; and the sends, oldest first. On the loop.
ContextSnapshot take_snapshot(const DautogradShared& shared, const DistributedContext& context);
PassSnapshot take_snapshot(const Id& id, const DistributedContext::Pass& pass);
void add_sends(ContextSnapshot& snapshot, const DautogradShared& shared, const DistributedContext& context);

}  // namespace distag
