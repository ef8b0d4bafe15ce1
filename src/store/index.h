#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/safetensors.h"
#include "tensor/value.h"

// The model of a checkpoint: a value whose tensors lie, in boxes, in safetensors files. Pure: text in, text out.
namespace distag::store {

inline constexpr uint64_t kPiece = uint64_t{4} << 20;  // bytes that share a crc
inline constexpr const char* kIndexName = "index.json";

// A part of a tensor: an entry of a file.
struct StoredBox {
  Dims offset;
  Dims extent;
  std::string file;              // a name, without a folder
  std::string name;              // of the entry
  std::vector<uint32_t> pieces;  // the crc of each; empty: unknown, as in files of other writers
};

struct StoredEntry {
  Dtype dtype = Dtype::kFloat32;
  Dims shape;
  std::string spec;  // when saved, for people
  std::vector<StoredBox> boxes;
  const OtherDtype* other = nullptr;  // in files of other writers: its real dtype, and then it is not read
};

struct Index {
  std::string id;
  std::string mesh;                             // when saved, for people
  std::string tree;                             // the value in JSON, its tensors by path
  std::map<std::string, StoredEntry> entries;   // by path
  std::map<std::string, uint32_t> header_sums;  // by file name: the crc of all bytes before the elements
};

// Calls visit(path, tensor) for each tensor of a value, in the order of the paths, and gives the tree. Throws
// INVALID_ARGUMENT, naming the path, for values that cannot be saved (references, objects).
std::string print_tree(const Value& value, const std::function<void(const std::string&, const Tensor&)>& visit);
// The entries of a tree by path: numbers, texts and bytes in JSON; tensors as their paths; lists and maps without their
// items.
std::map<std::string, std::string> entries_of_tree(const std::string& tree);
// The value of a tree, with the tensor that `make` gives for each path. Throws PROTOCOL.
Value parse_tree(const std::string& tree, const std::string& file,
                 const std::function<Tensor(const std::string&)>& make);

// The text ends with its own crc.
std::string print_index(const Index& index);
// Throws PROTOCOL, naming file and entry, for a text that was changed, boxes that leave an element out or have it
// twice, and file names with a folder in them.
Index parse_index(std::string_view text, const std::string& file);
// The index of files of other writers: each entry is a tensor. `headers` has the header of each file by name.
Index index_of_files(const std::map<std::string, std::vector<StoredTensor>>& headers);

// "model/w[0:4, 2:7]"; the path itself for a box that is all of the tensor.
std::string name_of_part(const std::string& path, const Dims& shape, const Dims& offset, const Dims& extent);

}  // namespace distag::store
