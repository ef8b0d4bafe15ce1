#include "base/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/file_size.h"

namespace distag {
namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;  // some kernels refuse 2 GiB

[[noreturn]] void fail_at(const char* verb, const std::string& path, int error) {
  if (error == ELOOP) fail(Status::kInvalidState, "\"{}\" is a symbolic link: give the file itself", path);
  const bool is_short = error == EMFILE || error == ENFILE || error == ENOMEM;
  fail(is_short ? Status::kOutOfMemory : Status::kInvalidState, "\"{}\" cannot be {}: {}", path, verb,
       describe_file_error(error));
}

bool is_regular(int descriptor) {
  struct stat status = {};
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

DataFile DataFile::create(const std::string& path) {
  std::string name = path;  // no memory is needed once the file is open
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_at("made", path, errno);
  return DataFile(descriptor, std::move(name));
}

std::shared_ptr<const DataFile> DataFile::open(const std::string& path, Links links) {
  const int no_follow = links == Links::kRefused ? O_NOFOLLOW : 0;
  const auto file = std::shared_ptr<DataFile>(new DataFile(-1, path));  // no memory is needed once it is open
  file->descriptor_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | no_follow);
  if (file->descriptor_ < 0 && errno == ENOENT) return nullptr;
  if (file->descriptor_ < 0) fail_at("read", path, errno);
  if (!is_regular(file->descriptor_)) fail(Status::kInvalidState, "\"{}\" is no regular file: remove it", path);
  return file;
}

DataFile::~DataFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

uint64_t DataFile::size() const { return identity().size; }

FileIdentity DataFile::identity() const {
  struct stat status = {};
  if (fstat(descriptor_, &status) != 0) fail_at("read", path_, errno);
  return {status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size),
          int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

void DataFile::append(const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write_to_file(descriptor_, next, std::min(size, kMostAtOnce));
    if (written < 0 && errno != EINTR) fail_at("written", path_, errno);
    if (written <= 0) continue;
    next += written;
    size -= static_cast<size_t>(written);
  }
}

void DataFile::cut(uint64_t size) {
  const auto end = static_cast<off_t>(size);
  if (set_file_size(descriptor_, end) != 0 || lseek(descriptor_, end, SEEK_SET) < 0) fail_at("written", path_, errno);
}

void DataFile::sync() {
  if (fsync(descriptor_) != 0) fail_at("written", path_, errno);
}

bool DataFile::read_at(uint64_t offset, void* data, size_t size) const {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = pread(descriptor_, next, std::min(size, kMostAtOnce), static_cast<off_t>(offset));
    if (got == 0) return false;
    if (got < 0 && errno != EINTR) fail_at("read", path_, errno);
    if (got < 0) continue;
    next += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return true;
}

PathKind kind_of_path(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return PathKind::kNothing;
    fail_at("read", path, errno);
  }
  if (S_ISREG(status.st_mode)) return PathKind::kFile;
  return S_ISDIR(status.st_mode) ? PathKind::kFolder : PathKind::kOther;
}

void make_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0777) != 0) {
    if (errno == EEXIST) return;
    fail_at("made", path, errno);
  }
  const size_t end = path.find_last_not_of('/');
  const size_t slash = end == std::string::npos ? end : path.rfind('/', end);
  sync_folder(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

std::vector<std::string> list_folder(const std::string& path) {
  std::vector<std::string> names;
  try {
    for (const auto& entry : std::filesystem::directory_iterator(path)) names.push_back(entry.path().filename());
  } catch (const std::filesystem::filesystem_error& error) {
    fail_at("read", path, error.code().value());
  }
  return names;
}

void sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 && errno == EACCES) return;  // a folder that may be written but not read
  if (descriptor < 0) fail_at("read", path, errno);
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  if (error != 0 && error != EINVAL) fail_at("written", path, error);  // some file systems have no sync of folders
}

void rename_file(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) fail_at("renamed", from, errno);
}

void remove_file(const std::string& path) noexcept { unlink(path.c_str()); }

}  // namespace distag
