#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/safetensors.h"
#include "tensor/value.h"

// What a checkpoint is: a value whose tensors lie, in boxes, in safetensors files. Pure: text in, text out.
namespace distag::store {

inline constexpr uint64_t kPiece = uint64_t{4} << 20;  // has a crc of its own
inline constexpr const char* kIndexName = "index.json";

// A part of a tensor: an entry of a file.
struct StoredBox {
  Dims offset;
  Dims extent;
  std::string file;              // a name, without a folder
  std::string name;              // of the entry
  std::vector<uint32_t> pieces;  // the crc of each; empty: unknown, as in files of others
};

struct StoredEntry {
  Dtype dtype = Dtype::kFloat32;
  Dims shape;
  std::string spec;  // of saving, for people
  std::vector<StoredBox> boxes;
  const OtherDtype* other = nullptr;  // of files of others: what it is of instead, and then it is not read
};

struct Index {
  std::string id;
  std::string mesh;                             // of saving, for people
  std::string tree;                             // the value in JSON, its tensors by path
  std::map<std::string, StoredEntry> entries;   // by path
  std::map<std::string, uint32_t> header_sums;  // of files, by name: the crc up to where the elements begin
};

// Calls visit(path, tensor) for each tensor of a value, in the order of the paths, and gives the tree. Throws
// INVALID_ARGUMENT naming the path of what is not saved (references, objects).
std::string print_tree(const Value& value, const std::function<void(const std::string&, const Tensor&)>& visit);
// What a tree has, by path: numbers, texts, bytes in JSON, tensors by their paths, and lists and maps without what is
// in them.
std::map<std::string, std::string> entries_of_tree(const std::string& tree);
// The value of a tree, with the tensor that `make` gives for each path. Throws PROTOCOL.
Value parse_tree(const std::string& tree, const std::string& file,
                 const std::function<Tensor(const std::string&)>& make);

// With its own crc at its end.
std::string print_index(const Index& index);
// Throws PROTOCOL naming file and entry: a text that was changed, boxes that leave an element out or have it twice,
// names of files with a folder in them.
Index parse_index(std::string_view text, const std::string& file);
// The one of a file, or files, of others: each entry is a tensor. `headers` are those of the files, by name.
Index index_of_files(const std::map<std::string, std::vector<StoredTensor>>& headers);

// "model/w[0:4, 2:7]"; the path itself for a box that is the whole.
std::string name_of_part(const std::string& path, const Dims& shape, const Dims& offset, const Dims& extent);

}  // namespace distag::store
