#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace distag {

// Opens only regular files, and never waits: anything else at the path (a FIFO, a directory, a device) is refused.

// All of these throw OUT_OF_MEMORY, too, where memory or descriptors run out.

// nullopt when there is nothing at the path. Throws INVALID_STATE for what cannot be read.
std::optional<std::string> read_regular_file(const std::string& path);

// The text of a file in /proc; empty if it cannot be read.
std::string read_system_file(const std::string& path);

// Reads a file that no other user may read or write: of this user with mode 0600, or of root with 0640 at most, which
// its group may read. Throws DENIED for any other, INVALID_STATE for one that is missing or cannot be read.
std::string read_private_file(const std::string& path);

// Makes a file that only this user may read and write; it appears with its whole content. False when something is at
// the path already, which stays. Throws INVALID_STATE when that fails.
bool create_private_file(const std::string& path, std::string_view content);

// Replaces the content; the file is made if need be. Throws INVALID_STATE when that fails.
void write_regular_file(const std::string& path, std::string_view content);

// Appends a line to the file, which is made if need be; does nothing when that fails.
void append_to_file(const std::string& path, std::string_view line);

// Throws INVALID_STATE naming the path, unless the descriptor is of a regular file.
void check_regular_file(int descriptor, const std::string& path);

}  // namespace distag
