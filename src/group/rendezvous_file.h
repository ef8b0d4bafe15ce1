#pragma once

#include <memory>
#include <string>

#include "group/rendezvous.h"

namespace distag {

// "file:///dir": workers that share a file system meet in a directory. What a killed job has left there does not
// matter.
//
//   group   the record of the group (group_record.h), replaced as a whole by each worker that joins or is refused
//   lock    byte ranges of it are locked: one while the group changes, and one by each member as long as it lives
//   draft   the next record, which becomes the group by a rename
//
// The last member that leaves removes the files.
std::unique_ptr<Rendezvous> make_file_rendezvous(const std::string& uri, Loop& loop, Log& log);

}  // namespace distag
