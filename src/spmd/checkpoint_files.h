#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/data_file.h"
#include "base/mutex.h"
#include "layout/spec.h"
#include "store/index.h"

// The files of a checkpoint, without a mesh.
namespace distag::spmd {

std::string path_in(const std::string& folder, const std::string& name);
// "shard-<id>-00000-of-00004.safetensors"; and whether a name is of that kind, or of an index that is being written.
std::string shard_name(const std::string& id, int64_t position, int64_t count);
bool is_name_of_ours(const std::string& name);

// Our index in a folder; empty if the folder has none, or it cannot be read. Throws OUT_OF_MEMORY.
store::Index index_in(const std::string& folder);
// The folder of an index's files: `folder` may name a file.
std::string folder_of(const std::string& folder);

// Files of a folder that are read repeatedly. They stay open, so that no save takes them away. Files for which
// descriptors are lacking are opened for each read instead. Thread-safe.
class OpenFiles {
 public:
  static constexpr size_t kMostOpen = 256;
  explicit OpenFiles(std::string folder) : folder_(std::move(folder)) {}

  // Throws NOT_FOUND if the file is gone, or is another one than before.
  std::shared_ptr<const DataFile> open(const std::string& name) const;

 private:
  struct Seen {
    std::shared_ptr<const DataFile> file;  // nullptr: closed, to make room for others
    FileIdentity identity;
    uint64_t used = 0;
  };
  std::shared_ptr<const DataFile> open_anew(const std::string& path) const REQUIRES(mutex_);
  void close_oldest() const REQUIRES(mutex_);

  const std::string folder_;
  mutable Mutex mutex_;
  mutable std::map<std::string, Seen> seen_ GUARDED_BY(mutex_);
  mutable size_t open_ GUARDED_BY(mutex_) = 0;
  mutable size_t most_ GUARDED_BY(mutex_) = kMostOpen;
  mutable uint64_t uses_ GUARDED_BY(mutex_) = 0;
};

// The index of a folder, whose files are opened as `files`. An index of other writers is translated into ours, and has
// the places of all elements. Throws NOT_FOUND, PROTOCOL.
store::Index read_index(const std::string& folder, const OpenFiles& files);
// The same as a text, for other processes.
std::string read_index_text(const std::string& folder);

// The place to which elements are read, of the first one, and strides in elements. Without it they are only checked.
struct Destination {
  std::byte* first = nullptr;
  Dims strides;
};
// Memory that one reading after the other uses. To read elements that it was used to check takes no more of it.
using ReadBlock = std::vector<std::byte>;

// The elements of a checkpoint. Thread-safe.
class StoredElements {
 public:
  // Reads the headers of files whose elements the index does not place. Throws NOT_FOUND if a file is missing,
  // PROTOCOL.
  StoredElements(std::unique_ptr<const OpenFiles> files, store::Index index);

  const store::Index& index() const { return index_; }
  // Throws UNSUPPORTED, naming file and entry, if the elements have a dtype that tensors lack.
  void check_dtype(const store::StoredEntry& entry) const;
  // Reads the elements of a box of an entry. Throws as check_dtype, and PROTOCOL, naming file and entry, for pieces
  // that were changed; then some elements may have been read, also damaged ones.
  void read(const store::StoredEntry& entry, const layout::Box& box, const Destination& to, ReadBlock& block) const;
  // Reads and checks every piece.
  void check() const;

 private:
  // Finds the elements of all boxes.
  void place_boxes();
  // The file of a box. Throws PROTOCOL unless that has the box as the index says.
  std::shared_ptr<const DataFile> open(const store::StoredEntry& entry, const store::StoredBox& box) const;
  void read_box(const store::StoredEntry& entry, const store::StoredBox& stored, const layout::Box& wanted,
                const Destination& to, ReadBlock& block) const;

  const std::unique_ptr<const OpenFiles> files_;
  store::Index index_;  // constant once it is made
};

}  // namespace distag::spmd
