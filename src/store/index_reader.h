#pragma once

#include <string>
#include <string_view>

#include "store/index.h"

namespace distag::store {

// Reads an index in one pass, which ends at the first byte that is not allowed there: the memory is that of the index.
// Throws PROTOCOL naming file and entry, UNSUPPORTED for another version.
Index read_index(std::string_view text, const std::string& file);

// The names of the files in "weight_map" of a model.safetensors.index.json, each once. Throws PROTOCOL.
std::vector<std::string> files_in_weight_map(std::string_view text, const std::string& file);

}  // namespace distag::store
