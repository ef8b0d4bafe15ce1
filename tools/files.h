#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "run/descriptor.h"

namespace distag_tool {

// Files that the command reads and writes; programs that it starts inherit none of their descriptors. Failures throw
// std::runtime_error naming the path and the reason. main() ignores SIGXFSZ: a file that may not be that long (ulimit
// -f) is such a failure.

// strerror, and the remedy if a limit of this process is the reason.
const char* describe_file_error(int error);

// The text of a file; empty if the file cannot be read.
std::string read_text(const std::string& path);

// The lines of a file, one after the other.
class FileLines {
 public:
  explicit FileLines(const std::string& path);
  ~FileLines();
  FileLines(const FileLines&) = delete;
  FileLines& operator=(const FileLines&) = delete;

  bool is_open() const { return file_ != nullptr; }
  // False: there is no further line.
  bool next(std::string& line);

 private:
  FILE* file_;
  char* line_ = nullptr;
  size_t room_ = 0;
};

// Writes a file from its start, and replaces its old contents.
class OutFile {
 public:
  explicit OutFile(const std::string& path);
  void write(std::string_view bytes);

 private:
  const std::string path_;
  Descriptor file_;
};

// A file that gets its name when it is complete, and leaves nothing otherwise. Replaces a file of that name.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes);
  void finish();

 private:
  const std::string path_;
  const std::string part_;
  Descriptor file_;
  bool is_whole_ = false;
};

// Makes a file for this user alone, complete from its first moment; if the path exists, that is a failure.
void make_secret_file(const std::string& path, std::string_view text);

}  // namespace distag_tool
