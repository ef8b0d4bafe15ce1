#include "group/launchers.h"

#include <charconv>
#include <string_view>

#include "base/error.h"
#include "group/rank_table.h"

namespace distag {
namespace {

constexpr std::string_view kOwnPrefix = "DISTAG_";

std::optional<EnvironmentVariable> find_exact(const char* name, const EnvironmentReader& get_environment) {
  const char* const value = name == nullptr ? nullptr : get_environment(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return EnvironmentVariable{name, value};
}

bool is_set(const char* name, const EnvironmentReader& get_environment) {
  return find_exact(name, get_environment).has_value();
}

// A variable of a row. The variables of torchrun and the size for Kubernetes may have the prefix DISTAG_.
std::optional<EnvironmentVariable> find_of(const LauncherRow& row, const char* name,
                                           const EnvironmentReader& get_environment) {
  if (name == nullptr) return std::nullopt;
  const bool takes_own = &row == &kTorchrun || name == kKubernetes.world_size;
  return takes_own ? find_variable(name, get_environment) : find_exact(name, get_environment);
}

bool is_complete(const LauncherRow& row, const EnvironmentReader& get_environment) {
  const bool has_size = row.world_size == nullptr || find_of(row, row.world_size, get_environment);
  return has_size && find_of(row, row.rank, get_environment) &&
         (row.seen_by == nullptr || is_set(row.seen_by, get_environment));
}

LauncherSearch found(const LauncherRow& row) { return {&row, ""}; }
LauncherSearch missing(std::string text) { return {nullptr, std::move(text)}; }

// An open world, in which the group may assign the rank. An Indexed Job numbers its members nevertheless.
LauncherSearch find_open(const EnvironmentVariable& size, const EnvironmentReader& get_environment) {
  if (is_set(kKubernetes.rank, get_environment)) return found(kKubernetes);
  return found(size.name.starts_with(kOwnPrefix) ? kOwnLauncher : kTorchrun);
}

std::string missing_of_slurm(const EnvironmentReader& get_environment) {
  const bool has_step = is_set(kSlurm.seen_by, get_environment);
  const bool has_rank = is_set(kSlurm.rank, get_environment);
  if (has_step && has_rank) {
    return fmt::format("{} ({} and {} are set)", kSlurm.world_size, kSlurm.seen_by, kSlurm.rank);
  }
  if (has_step) return fmt::format("{} ({} is set)", kSlurm.rank, kSlurm.seen_by);
  if (!has_rank) return "";
  return fmt::format("{} ({} is set, as in a batch script: start the workers by srun there)", kSlurm.seen_by,
                     kSlurm.rank);
}

}  // namespace

std::optional<EnvironmentVariable> find_variable(const std::string& name, const EnvironmentReader& get_environment) {
  const std::string own = std::string(kOwnPrefix) + name;
  if (auto variable = find_exact(own.c_str(), get_environment)) return variable;
  return find_exact(name.c_str(), get_environment);
}

int32_t read_number(const EnvironmentVariable& variable, int32_t least, int32_t most) {
  const std::string& text = variable.value;
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole =
      error == std::errc() && end == text.data() + text.size() && !(number == 0 && text.starts_with('-'));
  if (!is_whole || number < least || number > most) {
    fail(Status::kInvalidArgument, "{}=\"{}\" is no number in {} .. {}", variable.name, text, least, most);
  }
  return number;
}

LauncherSearch find_launcher(const EnvironmentReader& get_environment) {
  for (const LauncherRow* row : {&kOwnLauncher, &kTorchrun}) {
    if (is_complete(*row, get_environment)) return found(*row);
  }
  const auto size = find_variable(kTorchrun.world_size, get_environment);
  if (size && size->value.starts_with('-')) return find_open(*size, get_environment);
  if (const auto rank = find_variable(kTorchrun.rank, get_environment)) {
    return missing(fmt::format("{} ({} is set)", kTorchrun.world_size, rank->name));
  }
  if (is_complete(kPmix, get_environment)) return found(kPmix);
  for (const char* name : {kPmix.rank, kPmix.seen_by, kMpiRank}) {
    if (!is_set(name, get_environment)) continue;
    return missing(fmt::format("{} ({} is set; a launcher that speaks PMIx sets both)",
                               name == kPmix.rank ? kPmix.seen_by : kPmix.rank, name));
  }
  for (const LauncherRow* row : {&kSlurm, &kKubernetes}) {
    if (is_complete(*row, get_environment)) return found(*row);
  }
  if (is_set(kKubernetes.rank, get_environment)) {
    return missing(fmt::format("{} ({} is set)", kKubernetes.world_size, kKubernetes.rank));
  }
  if (std::string text = missing_of_slurm(get_environment); !text.empty()) return missing(std::move(text));
  if (size) return missing(fmt::format("{} ({} is set)", kTorchrun.rank, size->name));
  return missing(fmt::format("{}, {}", kTorchrun.world_size, kTorchrun.rank));
}

LaunchPlace read_rank(const LauncherRow& row, const EnvironmentReader& get_environment) {
  LaunchPlace place;
  place.launcher = row.name;
  if (row.world_size == nullptr) {  // PMIx provides it
    place.rank = read_number(*find_of(row, row.rank, get_environment), 0, INT32_MAX);
    return place;
  }
  const auto size = find_of(row, row.world_size, get_environment);
  if (!size) fail(Status::kInvalidArgument, "{} is not set in the environment", row.world_size);
  place.world_size = read_number(*size, &row == &kSlurm ? 1 : -1, kRanks);
  if (place.world_size == 0) fail(Status::kInvalidArgument, "{} is 0; -1 is an open world", size->name);
  const auto rank = find_of(row, row.rank, get_environment);
  if (!rank) return place;  // an open world assigns it
  const bool is_open = place.world_size < 0;
  place.rank = read_number(*rank, is_open ? -1 : 0, is_open ? kRanks - 1 : place.world_size - 1);
  return place;
}

namespace {

// A number that the launcher may or may not provide.
std::optional<int32_t> read_optional(const LauncherRow& row, const char* name, int32_t least, int32_t most,
                                     const EnvironmentReader& get_environment) {
  const auto variable = find_of(row, name, get_environment);
  if (!variable) return std::nullopt;
  return read_number(*variable, least, most);
}

[[noreturn]] void refuse_tasks(const EnvironmentVariable& tasks) {
  fail(Status::kInvalidArgument, "{}=\"{}\" is no list like \"2(x3),1\" with an entry for this node", tasks.name,
       tasks.value);
}

// "2(x3),1": two tasks on each of the nodes 0 to 2, one on node 3.
int32_t read_tasks_of_node(const EnvironmentVariable& tasks, int32_t node) {
  const char* place = tasks.value.data();
  const char* const end = place + tasks.value.size();
  int64_t nodes = 0;
  while (place != end) {
    int32_t count = 0, repeats = 1;
    auto read = std::from_chars(place, end, count);
    if (read.ec != std::errc() || count < 1) refuse_tasks(tasks);
    if (std::string_view(read.ptr, end).starts_with("(x")) {
      read = std::from_chars(read.ptr + 2, end, repeats);
      if (read.ec != std::errc() || repeats < 1 || read.ptr == end || *read.ptr++ != ')') refuse_tasks(tasks);
    }
    nodes += repeats;
    if (node < nodes) return count;
    if (read.ptr == end || *read.ptr != ',') break;
    place = read.ptr + 1;
  }
  refuse_tasks(tasks);
}

int32_t read_local_size(const LauncherRow& row, const LaunchPlace& place, const EnvironmentReader& get_environment) {
  const auto size = find_of(row, row.local_size, get_environment);
  if (!size || (&row == &kSlurm && place.node < 0)) return 0;
  if (&row == &kSlurm) return read_tasks_of_node(*size, place.node);
  return read_number(*size, 1, place.world_size < 0 ? INT32_MAX : place.world_size);
}

}  // namespace

LaunchPlace read_place(const EnvironmentReader& get_environment, const std::function<LaunchPlace()>& ask_pmix) {
  const LauncherSearch search = find_launcher(get_environment);
  if (search.found == nullptr) {
    fail(Status::kInvalidArgument,
         "not set in the environment: {}; set them (RANK and the like also with DISTAG_ before it), or start by distag "
         "run",
         search.missing);
  }
  const LauncherRow& row = *search.found;
  if (&row == &kPmix) return ask_pmix();
  LaunchPlace place = read_rank(row, get_environment);
  const auto read = [&](const char* name, int32_t least, int32_t most) {
    return read_optional(row, name, least, most, get_environment);
  };
  place.node_count = read(row.node_count, 1, INT32_MAX).value_or(0);
  place.node = read(row.node, 0, place.node_count > 0 ? place.node_count - 1 : INT32_MAX).value_or(-1);
  place.local_size = read_local_size(row, place, get_environment);
  place.local_rank = read(row.local_rank, 0, place.local_size > 0 ? place.local_size - 1 : INT32_MAX).value_or(-1);
  place.restart = read(row.restart, 0, INT32_MAX).value_or(0);
  return place;
}

}  // namespace distag
