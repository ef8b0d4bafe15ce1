#pragma once

#include "base/ids.h"

namespace distag {

// The id of a pass, and how it is run.
struct PassInfo {
  Id pass;
  bool retain_graph = false;
  bool fast = false;
  bool planned = false;  // without a search
  bool creates_graph = false;
};

}  // namespace distag
