#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "group/launchers.h"

namespace distag {

// The first host of a list of Slurm's, like "n[01-03,7],gpu1", and the number of its hosts.
struct HostList {
  std::string first;
  uint64_t count = 0;  // at most UINT32_MAX
};

// Throws INVALID_ARGUMENT for a malformed list, or one that has more than 4,096 hosts and ranges, or is over 64 KiB.
HostList parse_host_list(std::string_view text);

// Where "slurm://" meets: the first host of this step, and a port from 20000 to 32767 made of the numbers of job and
// step. A step on one host meets on its loopback, for which no group key is needed. Throws INVALID_ARGUMENT naming the
// variables that are missing or malformed.
std::string slurm_address(const EnvironmentReader& get_environment);

}  // namespace distag
