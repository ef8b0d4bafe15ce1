#pragma once

#include <string>
#include <vector>

#include "folder.h"
#include "run/descriptor.h"

namespace distag_tool {

// Where the ranks of a group find each other: a folder of their own for distag, which also serves a rank that is
// started again after rank 0 was lost; and a port for programs that read MASTER_PORT.
class Meeting {
 public:
  Meeting();  // throws std::runtime_error when there is no room for a folder, or no port

  // The environment of a rank, which has been started `restart` times before: the own one, with the variables of its
  // group in the place of those that are there.
  std::vector<std::string> make_environment(int rank, int rank_count, int restart) const;

  // Whether it gives each rank one thread of BLAS: several share this machine, and nobody has set another number.
  static bool limits_blas(int rank_count);

 private:
  Folder folder_;
  int port_ = 0;
  Descriptor held_;  // bound, but not listening: the system gives the port to nobody, and rank 0 may listen at it
};

}  // namespace distag_tool
