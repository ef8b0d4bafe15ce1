#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace distag {

// Identifies a file and its state.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t number = 0;
  uint64_t size = 0;
  int64_t written = 0;  // when, in nanoseconds
  bool operator==(const FileIdentity&) const = default;
};

enum class Links { kRefused, kFollowed };  // a symbolic link at the end of a path

// A regular file of large data, and functions for the folder around it. All of these throw INVALID_STATE naming the
// path and the reason, OUT_OF_MEMORY where descriptors or memory run out. They block. Any thread.
class DataFile {
 public:
  // Creates a new file. Fails if anything is at the path.
  static DataFile create(const std::string& path);
  // Opens an existing file for reading. nullptr: nothing is at the path.
  static std::shared_ptr<const DataFile> open(const std::string& path, Links links = Links::kRefused);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const;
  FileIdentity identity() const;
  void append(const void* data, size_t size);
  // Drops the bytes from `size` on; the next bytes go there.
  void cut(uint64_t size);
  // Flushes the file to the disk.
  void sync();
  // False: the file ends earlier.
  bool read_at(uint64_t offset, void* data, size_t size) const;

 private:
  DataFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  int descriptor_;  // -1: it is not open yet
  const std::string path_;
};

enum class PathKind { kNothing, kFile, kFolder, kOther };
PathKind kind_of_path(const std::string& path);  // follows symbolic links
// Makes the folder if it is missing, and flushes that to the disk; its parent is not made.
void make_folder(const std::string& path);
std::vector<std::string> list_folder(const std::string& path);  // names, in no order
// Flushes changes of names in the folder to the disk.
void sync_folder(const std::string& path);
// Atomic; replaces what was at `to`.
void rename_file(const std::string& from, const std::string& to);
void remove_file(const std::string& path) noexcept;  // if possible

}  // namespace distag
