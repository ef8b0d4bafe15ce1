#pragma once

#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "store/index.h"

namespace distag::store {

// Reads an index in one pass, which ends at the first byte that is not allowed there: the memory is that of the index.
// Throws PROTOCOL naming file and entry, UNSUPPORTED for another version.
Index read_index(std::string_view text, const std::string& file);

// The "weight_map" of a model.safetensors.index.json.
struct WeightMap {
  std::set<std::string> files;
  std::deque<std::pair<std::string_view, const std::string*>> entries;  // by name: the file of each, one of `files`
  Arena names;
};

// Throws PROTOCOL.
WeightMap read_weight_map(std::string_view text, const std::string& file);

}  // namespace distag::store
