#include "checks.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "folder.h"
#include "group/launcher_table.h"
#include "handles.h"
#include "trial.h"
#include "versions.h"

namespace distag_tool {
namespace {

// The needs of a start, and of a peer: see distag_worker_start.
constexpr rlim_t kOfAStart = 24;
constexpr rlim_t kOfAPeer = 8;
constexpr rlim_t kFewPeers = 16;

template <typename Function>
Function* find_symbol(void* library, const char* name) {
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

// Each variable of the table, once: those of distag, then those of launchers, and those for the rendezvous.
std::vector<std::string> launcher_variables() {
  std::vector<std::string> names;
  const auto add = [&names](const char* name) {
    if (name != nullptr && std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  for (const distag::LauncherRow& row : distag::kLaunchers) {
    for (const char* name : {row.seen_by, row.rank, row.world_size, row.local_rank, row.local_size, row.node,
                             row.node_count, row.restart}) {
      add(name);
    }
  }
  for (const char* name : {distag::kMpiRank, "DISTAG_RENDEZVOUS", "DISTAG_MASTER_ADDR", "DISTAG_MASTER_PORT",
                           "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_NODELIST", "SLURM_JOB_ID"}) {
    add(name);
  }
  return names;
}

}  // namespace

Check check_versions() {
  const Versions versions = read_versions();
  Check result{"versions",
               "library " + versions.loaded + ", ABI " + std::to_string(versions.abi) + ", protocol " +
                   std::to_string(versions.protocol),
               "",
               {{"library", versions.loaded}, {"abi", versions.abi}, {"protocol", versions.protocol}}};
  if (!versions.serves_abi) {
    result.remedy = "install a libdistag of ABI " + std::to_string(versions.abi);
  } else if (versions.loaded != versions.compiled) {
    result.text += "; this command is of " + versions.compiled;
  }
  return result;
}

Check check_blas() {
  void* const library = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_NOLOAD);  // libdistag loads it
  auto* const config = find_symbol<char*(void)>(library, "openblas_get_config");
  auto* const threads = find_symbol<int(void)>(library, "openblas_get_num_threads");
  Dl_info place = {};
  if (config == nullptr || threads == nullptr || dladdr(reinterpret_cast<void*>(config), &place) == 0) {
    return {"BLAS", "no OpenBLAS is loaded", "install libopenblas0"};
  }
  std::error_code ignored;
  const std::string path = std::filesystem::weakly_canonical(place.dli_fname, ignored).string();
  const int count = threads();
  return {"BLAS",
          config() + std::string(", ") + std::to_string(count) + (count == 1 ? " thread" : " threads") + ", " + path +
              (count > 1 ? "; OPENBLAS_NUM_THREADS=1 for several workers on one machine" : ""),
          "",
          {{"config", config()}, {"threads", count}, {"path", path}}};
}

Check check_descriptors() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t peers = limit.rlim_cur < kOfAStart ? 0 : (limit.rlim_cur - kOfAStart) / kOfAPeer;
  Check result{"descriptors",
               "at most " + std::to_string(limit.rlim_cur) + ", enough for a worker with about " +
                   std::to_string(peers) + " peers",
               "",
               {{"limit", limit.rlim_cur}, {"hard_limit", limit.rlim_max}, {"peers", peers}}};
  if (peers < kFewPeers) result.remedy = "raise the limit of open files: ulimit -n 1024";
  return result;
}

Check check_same_machine_lane() {
  const char* const wanted = std::getenv("DISTAG_LANE");
  const int memory = memfd_create("distag-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const std::string error = memory < 0 ? std::strerror(errno) : "";
  if (memory >= 0) close(memory);
  std::string why;
  if (wanted != nullptr && std::strcmp(wanted, "0") == 0) why = "DISTAG_LANE=0 turns it off";
  if (why.empty() && !error.empty()) why = "no memory that processes can share: " + error;
  return {"same-machine lane",
          why.empty() ? "workers of this user on this machine share memory" : "sockets only: " + why,
          "",
          {{"works", why.empty()}, {"why", why}}};
}

Check check_private_folder() {
  const Folder folder("distag-doctor");
  const std::string base = std::filesystem::path(folder.path()).parent_path().string();
  return {"private folder", "can be made in " + base, "", {{"base", base}}};
}

Check check_environment() {
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();
  std::string text;
  for (const std::string& name : launcher_variables()) {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') continue;
    text += (text.empty() ? "" : ", ") + name + "=" + value;
    facts[name] = value;
  }
  if (text.empty()) {
    return {
        "env://", "nothing is set: a worker without options cannot start; distag run sets it", "", {{"set", facts}}};
  }
  distag_environment place = DISTAG_ENVIRONMENT_INIT;
  distag_error error = DISTAG_ERROR_INIT;
  if (distag_get_environment(&place, &error) != DISTAG_OK) {
    return {"env://", text + ": " + error.message, "set what it names, or unset all of these", {{"set", facts}}};
  }
  return {"env://",
          "rank " + std::to_string(place.rank) + " of " + std::to_string(place.world_size) + ", by " + place.launcher +
              ": " + text,
          "",
          {{"launcher", place.launcher}, {"set", facts}}};
}

Check check_training() {
  const Folder folder("distag-doctor");
  const Trial trial = train_one_step(folder.path());
  char text[200];
  std::snprintf(text, sizeof text, "two workers met within %.1f ms and trained a step in %.1f ms: loss %g, then %g",
                static_cast<double>(trial.start.count()) / 1e3, static_cast<double>(trial.step.count()) / 1e3,
                trial.loss_before, trial.loss_after);
  return {"training",
          text,
          "",
          {{"start_us", trial.start.count()},
           {"step_us", trial.step.count()},
           {"loss_before", trial.loss_before},
           {"loss_after", trial.loss_after}}};
}

}  // namespace distag_tool
