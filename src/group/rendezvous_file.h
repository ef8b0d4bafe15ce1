#pragma once

#include <memory>
#include <string>

#include "group/rendezvous.h"

namespace distag {

// "file:///dir": workers that share a file system meet in a directory, which is empty at the start of a job.
//
//   rank.<rank>     one member: who it is and what it expects. Its name exists once, made whole (a hard link)
//   name.<name>     the same file, so that a name is taken once as well
//   group           all members, or why they cannot be a group; made whole by who finds out first
//
// Each member takes its own two away when it leaves, and the last one the group's.
std::unique_ptr<Rendezvous> make_file_rendezvous(const std::string& uri, Loop& loop, Log& log);

}  // namespace distag
