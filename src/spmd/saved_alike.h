#pragma once

#include <string>

#include "spmd/checkpoint_items.h"

namespace distag::spmd {

// Whether all members save the same value, apart from the parts that each has. Else the mesh ends for all of them:
// throws DIVERGED naming the first entry that differs, and what two members have there. `what`: the call.
void check_saved_alike(CallOnLine& call, const std::string& what, const SavedValue& saved);

}  // namespace distag::spmd
