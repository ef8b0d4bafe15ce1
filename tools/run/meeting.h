#pragma once

#include <string>
#include <vector>

#include "folder.h"
#include "run/descriptor.h"

namespace distag_tool {

// The meeting place of a group's ranks: a folder of their own for distag, which also serves a rank that is started
// again after rank 0 was lost; and a port for programs that read MASTER_PORT.
class Meeting {
 public:
  Meeting();  // throws std::runtime_error when a folder or a port cannot be had

  // The environment of a rank that was started `restart` times before: this process's own, in which the variables of
  // the group replace existing ones.
  std::vector<std::string> make_environment(int rank, int rank_count, int restart) const;

  // Whether each rank gets one thread of BLAS: several share this machine, and the user has set no number.
  static bool limits_blas(int rank_count);

 private:
  Folder folder_;
  int port_ = 0;
  Descriptor held_;  // bound, but not listening: no program gets the port from the system, and rank 0 may listen at it
};

}  // namespace distag_tool
