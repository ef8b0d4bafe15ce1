#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "group/launchers.h"

namespace distag {

// The first host of a host list of Slurm, like "n[01-03,7],gpu1", and the number of hosts in it.
struct HostList {
  std::string first;
  uint64_t count = 0;  // at most UINT32_MAX
};

// Throws INVALID_ARGUMENT for a malformed list, one with more than 4,096 hosts and ranges, or one over 64 KiB.
HostList parse_host_list(std::string_view text);

// The address for "slurm://": the first host of this step, and a port from 20000 to 32767 computed from the numbers of
// job and step. A step on one host uses its loopback, for which no group key is needed. Throws INVALID_ARGUMENT, which
// names the missing or malformed variable.
std::string slurm_address(const EnvironmentReader& get_environment);

}  // namespace distag
