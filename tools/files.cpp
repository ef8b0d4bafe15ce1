#include "files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace distag_tool {
namespace {

[[noreturn]] void fail_to_write(const std::string& path, const char* why) {
  throw std::runtime_error("cannot write " + path + ": " + why);
}

void write_all(const Descriptor& file, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_to_write(path, describe_file_error(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void sync(const Descriptor& file, const std::string& path) {
  if (fsync(file.get()) != 0) fail_to_write(path, describe_file_error(errno));
}

// Makes a new name outlive a crash. Some file systems cannot sync folders, and some folders cannot be read.
void sync_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0 || fsync(opened.get()) == 0 || errno == EINVAL) return;
  fail_to_write(folder, describe_file_error(errno));
}

// Gives the file a name that is free. Not all file systems have links.
bool give_name(const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) == 0) return true;
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) return false;
  return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0;
}

}  // namespace

const char* describe_file_error(int error) {
  return error == EFBIG ? "it may not be so long (ulimit -f)" : std::strerror(error);
}

std::string read_text(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  std::string text;
  char piece[4096];
  for (ssize_t got = 0; (got = read(file.get(), piece, sizeof piece)) != 0;) {
    if (got > 0) text.append(piece, static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) return {};
  }
  return text;
}

FileLines::FileLines(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC);
  file_ = file < 0 ? nullptr : fdopen(file, "r");
  if (file_ == nullptr && file >= 0) close(file);
}

FileLines::~FileLines() {
  std::free(line_);
  if (file_ != nullptr) std::fclose(file_);
}

bool FileLines::next(std::string& line) {
  const ssize_t size = file_ == nullptr ? -1 : getline(&line_, &room_, file_);
  if (size < 0) return false;
  line.assign(line_, static_cast<size_t>(size));
  if (!line.empty() && line.back() == '\n') line.pop_back();
  return true;
}

OutFile::OutFile(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY | O_CLOEXEC, 0666)) {
  if (file_.get() < 0) fail_to_write(path_, describe_file_error(errno));
}

void OutFile::write(std::string_view bytes) { write_all(file_, path_, bytes); }

NewFile::NewFile(const std::string& path)
    : path_(path), part_(path + ".part"), file_(open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (file_.get() >= 0) return;
  fail_to_write(part_,
                errno == EEXIST ? "another merge writes it, or was killed: remove it" : describe_file_error(errno));
}

NewFile::~NewFile() {
  if (!is_whole_) unlink(part_.c_str());
}

void NewFile::write(std::string_view bytes) { write_all(file_, part_, bytes); }

void NewFile::finish() {
  sync(file_, part_);
  if (rename(part_.c_str(), path_.c_str()) != 0) fail_to_write(path_, describe_file_error(errno));
  is_whole_ = true;
  sync_folder_of(path_);
}

void make_secret_file(const std::string& path, std::string_view text) {
  std::string beside = path + ".XXXXXX";
  const Descriptor file(mkostemp(beside.data(), O_CLOEXEC));  // mode 0600
  if (file.get() < 0) fail_to_write(path, describe_file_error(errno));
  try {
    write_all(file, path, text);
    sync(file, path);
    if (!give_name(beside, path)) fail_to_write(path, describe_file_error(errno));
  } catch (...) {
    unlink(beside.c_str());
    throw;
  }
  unlink(beside.c_str());
  sync_folder_of(path);
}

}  // namespace distag_tool
