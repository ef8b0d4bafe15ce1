#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "store/arena.h"
#include "store/safetensors.h"
#include "tensor/value.h"

// The model of a checkpoint: a value whose tensors lie, in boxes, in safetensors files. Pure: text in, text out.
namespace distag::store {

inline constexpr uint64_t kPiece = uint64_t{4} << 20;  // bytes that share a crc
inline constexpr const char* kIndexName = "index.json";
inline constexpr uint64_t kNoPlace = UINT64_MAX;

// By name, without a folder: the crc of all bytes before the elements, if the index has it.
using StoredFiles = std::map<std::string, std::optional<uint32_t>>;
using StoredFile = StoredFiles::value_type;

// A part of a tensor: an entry of a file.
struct StoredBox {
  std::span<const int64_t> offset;
  std::span<const int64_t> extent;
  std::string_view name;             // of the entry
  std::span<const uint32_t> pieces;  // the crc of each; empty: unknown, as in files of other writers
  const StoredFile* file = nullptr;
  uint64_t begin = kNoPlace;  // of its elements in the file: the text of an index does not have it
};

struct StoredEntry {
  std::string_view path;
  std::span<const int64_t> shape;
  std::string_view spec;  // when saved, for people
  std::span<StoredBox> boxes;
  Dtype dtype = Dtype::kFloat32;
  const OtherDtype* other = nullptr;  // in files of other writers: its real dtype, and then it is not read
};

struct Index {
  std::string id;
  std::string mesh;                 // when saved, for people
  std::string tree;                 // the value; empty, of files of other writers: a map of all tensors by their names
  std::deque<StoredEntry> entries;  // by path
  StoredFiles files;

  // Copies the entry with its texts and lists.
  void add(const StoredEntry& entry);
  // The same for a tensor of another writer, as an entry of one box.
  void add(const StoredTensor& tensor, const StoredFile& file, uint64_t begin);
  // Puts the entries, once all are added, in their order. Gives one whose path another has, too; nullptr: none.
  const StoredEntry* sort();
  const StoredEntry* find(std::string_view path) const;  // nullptr: none

 private:
  Arena arena_;
};

// The value of an index, with what `make` gives for the entry of each tensor. Throws PROTOCOL.
Value value_of(const Index& index, const std::string& file, const std::function<Value(const StoredEntry&)>& make);

// The text ends with its own crc.
std::string print_index(const Index& index);
// Throws PROTOCOL, naming file and entry, for a text that was changed, boxes that leave an element out or have it
// twice, and file names with a folder in them.
Index parse_index(std::string_view text, const std::string& file);

// "model/w[0:4, 2:7]"; the path itself for a box that is all of the tensor.
std::string name_of_part(const std::string& path, const Dims& shape, const Dims& offset, const Dims& extent);

}  // namespace distag::store
