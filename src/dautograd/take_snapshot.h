#pragma once

#include "dautograd/dautograd_shared.h"
#include "dautograd/distributed_context.h"
#include "dautograd/snapshot.h"

namespace distag {

// Take what a report says about a context: its facts, and its sends, oldest first. On the loop.
ContextSnapshot take_snapshot(const DautogradShared& shared, const DistributedContext& context);
PassSnapshot take_snapshot(const Id& id, const DistributedContext::Pass& pass);
void add_sends(ContextSnapshot& snapshot, const DautogradShared& shared, const DistributedContext& context);

}  // namespace distag
