#pragma once

#include <string>

#include "spmd/checkpoint_items.h"

namespace distag::spmd {

// Checks that all members save the same value, apart from their parts. If not, ends the mesh on all members: throws
// DIVERGED naming the first entry that differs, with the descriptions of two members. `what`: the call.
void check_saved_alike(CallOnLine& call, const std::string& what, const SavedValue& saved);

}  // namespace distag::spmd
