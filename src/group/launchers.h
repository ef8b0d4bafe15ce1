#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "group/launcher_table.h"

namespace distag {

// nullptr or an empty text: not set.
using EnvironmentReader = std::function<const char*(const char*)>;

struct EnvironmentVariable {
  std::string name;
  std::string value;
};

// DISTAG_<name> goes before <name>.
std::optional<EnvironmentVariable> find_variable(const std::string& name, const EnvironmentReader& get_environment);

// A decimal number within bounds, of nothing but digits and a sign. Throws INVALID_ARGUMENT naming the variable.
int32_t read_number(const EnvironmentVariable& variable, int32_t least, int32_t most);

// The first launcher whose variables are all set.
struct LauncherSearch {
  const LauncherRow* found = nullptr;
  std::string missing;  // without a launcher: the variables that are not set, beside those that are
};
LauncherSearch find_launcher(const EnvironmentReader& get_environment);

// The place of this process in its group.
struct LaunchPlace {
  const char* launcher = "";
  int32_t rank = -1;       // -1: the group gives one
  int32_t world_size = 0;  // -1: an open world; 0: PMIx tells
  int32_t local_rank = -1;
  int32_t local_size = 0;
  int32_t node = -1;
  int32_t node_count = 0;
  int32_t restart = 0;
};

// What PMIx says about this process and its job.
struct PmixPlace {
  LaunchPlace place;
  std::string other_node;  // a machine of the job beside this one; empty: all run here
};

// Rank and size alone, which is all that a start needs. Throws INVALID_ARGUMENT, as the next ones do.
LaunchPlace read_rank(const LauncherRow& row, const EnvironmentReader& get_environment);

// All that the launcher tells, PMIx by asking it. Names all that is missing.
LaunchPlace read_place(const EnvironmentReader& get_environment, const std::function<LaunchPlace()>& ask_pmix);

}  // namespace distag
