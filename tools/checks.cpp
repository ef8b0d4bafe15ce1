#include "checks.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "folder.h"
#include "handles.h"
#include "trial.h"
#include "versions.h"

namespace distag_tool {
namespace {

// As a start needs them, and a peer: see distag_worker_start.
constexpr rlim_t kOfAStart = 24;
constexpr rlim_t kOfAPeer = 8;
constexpr rlim_t kFewPeers = 16;

template <typename Function>
Function* find_symbol(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

const char* find_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// The value that "env://" reads for a name, and the variable it is from: DISTAG_<name> goes before <name>.
struct Variable {
  std::string name;
  std::string value;
};
std::optional<Variable> find_either(const std::string& name) {
  for (const std::string& candidate : {"DISTAG_" + name, name}) {
    if (const char* const value = find_variable(candidate.c_str())) return Variable{candidate, value};
  }
  return std::nullopt;
}

// Whether a worker can take its rank and the size of its group from the environment. It tries to meet others within
// this process, for no time: that it is alone says that it could.
std::string try_rank_of_environment() {
  distag_error error = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.rendezvous = "inproc://distag-doctor";
  distag_worker* made = nullptr;
  distag_worker_create(&options, &made, &error);
  const Worker worker(made);
  check(error);
  distag_worker_start(worker.get(), 0, &error);
  distag_worker_shutdown(worker.get(), 0, nullptr, nullptr);
  return error.code == DISTAG_OK || error.code == DISTAG_E_DEADLINE ? "" : error.message;
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
  auto* const config = find_symbol<char*(void)>("openblas_get_config");
  auto* const threads = find_symbol<int(void)>("openblas_get_num_threads");
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
  for (const char* name : {"RANK", "WORLD_SIZE", "RENDEZVOUS", "MASTER_ADDR", "MASTER_PORT"}) {
    const bool is_own = std::string_view(name) == "RENDEZVOUS";  // which others have no name for
    const char* const own = is_own ? find_variable("DISTAG_RENDEZVOUS") : nullptr;
    const auto variable = own != nullptr ? Variable{"DISTAG_RENDEZVOUS", own}
                          : is_own       ? std::nullopt
                                         : find_either(name);
    if (!variable) continue;
    text += (text.empty() ? "" : ", ") + variable->name + "=" + variable->value;
    facts[variable->name] = variable->value;
  }
  if (text.empty()) {
    return {
        "env://", "nothing is set: a worker without options cannot start; distag run sets it", "", {{"set", facts}}};
  }
  const std::string failure = try_rank_of_environment();
  if (failure.empty()) return {"env://", text, "", {{"set", facts}}};
  return {"env://", text + ": " + failure, "set what it names, or unset all of these", {{"set", facts}}};
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
