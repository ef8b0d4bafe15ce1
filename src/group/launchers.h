#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "group/launcher_table.h"

namespace distag {

// Returns nullptr or an empty text for a variable that is not set.
using EnvironmentReader = std::function<const char*(const char*)>;

struct EnvironmentVariable {
  std::string name;
  std::string value;
};

// DISTAG_<name> takes precedence over <name>.
std::optional<EnvironmentVariable> find_variable(const std::string& name, const EnvironmentReader& get_environment);

// A decimal number within bounds, with only digits and a sign. Throws INVALID_ARGUMENT, which names the variable.
int32_t read_number(const EnvironmentVariable& variable, int32_t least, int32_t most);

// The first launcher whose variables are all set.
struct LauncherSearch {
  const LauncherRow* found = nullptr;
  std::string missing;  // without a launcher: the variables that are not set, next to those that are
};
LauncherSearch find_launcher(const EnvironmentReader& get_environment);

// The place of this process in its group.
struct LaunchPlace {
  const char* launcher = "";
  int32_t rank = -1;       // -1: the group assigns one
  int32_t world_size = 0;  // -1: an open world; 0: PMIx will provide it
  int32_t local_rank = -1;
  int32_t local_size = 0;
  int32_t node = -1;
  int32_t node_count = 0;
  int32_t restart = 0;
};

// The place of this process and its job, as PMIx reports them.
struct PmixPlace {
  LaunchPlace place;
  std::string other_node;  // another machine of the job; empty: all processes run on this one
};

// Reads only rank and size, which a start needs. Throws INVALID_ARGUMENT, as the next functions do.
LaunchPlace read_rank(const LauncherRow& row, const EnvironmentReader& get_environment);

// Reads all that the launcher provides, for PMIx by a query. Errors name all missing variables.
LaunchPlace read_place(const EnvironmentReader& get_environment, const std::function<LaunchPlace()>& ask_pmix);

}  // namespace distag
