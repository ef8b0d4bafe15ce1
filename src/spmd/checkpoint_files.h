#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/data_file.h"
#include "layout/spec.h"
#include "store/index.h"

// The files of a checkpoint on the side of the disk: without a mesh.
namespace distag::spmd {

std::string path_in(const std::string& folder, const std::string& name);
// "shard-<id>-00000-of-00004.safetensors", and whether a name is of that kind, or the one of an index on its way.
std::string shard_name(const std::string& id, int64_t position, int64_t count);
bool is_name_of_ours(const std::string& name);

// The text of the index of a folder; that of files of others as one of ours would say it. Throws NOT_FOUND, PROTOCOL.
std::string read_index(const std::string& folder);
// The index of ours in a folder; an empty one if it has none, or one that cannot be read. Throws OUT_OF_MEMORY.
store::Index index_in(const std::string& folder);
// Where the files of an index lie: `folder` may name a file.
std::string folder_of(const std::string& folder);

// The elements of a checkpoint: its files are opened once, and stay open. Thread-safe.
class StoredElements {
 public:
  // Opens the files and reads their headers. Throws NOT_FOUND for one that is not there, PROTOCOL.
  StoredElements(std::string folder, store::Index index);

  const store::Index& index() const { return index_; }
  // The elements of a box of an entry, row-major. Throws PROTOCOL naming file and entry for pieces that were changed.
  void read(const std::string& path, const layout::Box& box, std::byte* out) const;
  // Every piece.
  void check() const;

 private:
  struct Opened {
    std::shared_ptr<const DataFile> file;
    uint64_t data_begin = 0;
    std::map<std::string, store::StoredTensor> tensors;
  };
  Opened open(const std::string& name) const;
  // Of an entry's box the place of its elements in its file. Throws PROTOCOL unless the file has it as the index says.
  const Opened& find(const std::string& path, const store::StoredEntry& entry, const store::StoredBox& box,
                     uint64_t& begin) const;
  void read_box(const std::string& path, const store::StoredEntry& entry, const store::StoredBox& stored,
                const layout::Box& wanted, std::byte* out) const;

  const std::string folder_;
  const store::Index index_;
  std::map<std::string, Opened> files_;
};

}  // namespace distag::spmd
