#include "group/rendezvous.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "group/launchers.h"
#include "group/rendezvous_etcd.h"
#include "group/rendezvous_file.h"
#include "group/rendezvous_inproc.h"
#include "group/rendezvous_pmix.h"
#include "group/rendezvous_tcp.h"
#include "group/slurm.h"
#include "wire/format.h"

namespace distag {
namespace {

constexpr std::string_view kEnvironmentUri = "env://";
constexpr std::string_view kSlurmUri = "slurm://";
constexpr std::string_view kPmixUri = "pmix://";

// Reports all variables at once that are needed and missing. Returns the launcher; nullptr: none is complete.
const LauncherRow* check_environment(bool wants_world, bool wants_address, const EnvironmentReader& get_environment) {
  std::string missing;
  const auto want = [&missing](bool is_there, const std::string& text) {
    if (!is_there) missing += (missing.empty() ? "" : ", ") + text;
  };
  const LauncherSearch search = find_launcher(get_environment);
  if (wants_world) want(search.found != nullptr, search.missing);
  const char* const uri = get_environment("DISTAG_RENDEZVOUS");
  if (wants_address && (uri == nullptr || *uri == '\0')) {
    const bool has_host = find_variable("MASTER_ADDR", get_environment).has_value();
    const bool has_port = find_variable("MASTER_PORT", get_environment).has_value();
    const bool has_own = search.found == &kSlurm || search.found == &kPmix;
    want(has_host || has_port || has_own, "DISTAG_RENDEZVOUS (or MASTER_ADDR and MASTER_PORT)");
    want(has_host || !has_port, "MASTER_ADDR (or DISTAG_RENDEZVOUS)");
    want(has_port || !has_host, "MASTER_PORT (or DISTAG_RENDEZVOUS)");
  }
  if (missing.empty()) return search.found;
  fail(Status::kInvalidArgument,
       "rendezvous: not set in the environment: {}; set them (RANK and the like also with DISTAG_ before it), start by "
       "distag run, or "
       "give rank, world_size and rendezvous in the options",
       missing);
}

EnvironmentVariable get_variable(const std::string& name, const EnvironmentReader& get_environment) {
  if (const std::optional<EnvironmentVariable> variable = find_variable(name, get_environment)) return *variable;
  fail(Status::kInvalidArgument, "{} is not set in the environment", name);
}

// "env://" stands for DISTAG_RENDEZVOUS, or for the address and port that PyTorch's programs read, or for the job of
// the launcher.
std::string read_address(const LauncherRow* launcher, const EnvironmentReader& get_environment) {
  const char* const uri = get_environment("DISTAG_RENDEZVOUS");
  if (uri != nullptr && *uri != '\0') {
    if (uri == kEnvironmentUri) fail(Status::kInvalidArgument, "DISTAG_RENDEZVOUS is \"env://\" itself");
    return uri;
  }
  const std::optional<EnvironmentVariable> named = find_variable("MASTER_ADDR", get_environment);
  if (!named && launcher == &kSlurm) return std::string(kSlurmUri);
  if (!named && launcher == &kPmix) return std::string(kPmixUri);
  const std::string host = get_variable("MASTER_ADDR", get_environment).value;
  int32_t port = read_number(get_variable("MASTER_PORT", get_environment), 1, 65535);
  // In this case the agent of torchrun itself listens at the port, so rank 0 takes the next one, in each attempt.
  const char* const agent = get_environment("TORCHELASTIC_USE_AGENT_STORE");
  const bool is_taken = agent != nullptr && std::string_view(agent) == "True";
  if (is_taken && get_variable("MASTER_PORT", get_environment).name == "MASTER_PORT") port += port < 65535 ? 1 : -1;
  const bool needs_brackets = host.find(':') != std::string::npos && host.front() != '[';
  return needs_brackets ? fmt::format("tcp://[{}]:{}", host, port) : fmt::format("tcp://{}:{}", host, port);
}

}  // namespace

RendezvousTarget resolve_rendezvous(const std::string& uri, int32_t rank, int32_t world_size,
                                    const EnvironmentReader& get_environment) {
  RendezvousTarget target{uri, rank, world_size};
  const LauncherRow* const launcher = check_environment(world_size == 0, uri == kEnvironmentUri, get_environment);
  if (world_size > 0 && (rank < 0 || rank >= world_size)) {
    fail(Status::kInvalidArgument, "rank {} is not in 0 .. {}", rank, world_size - 1);
  }
  try {
    if (world_size == 0) {
      const LaunchPlace place = read_rank(*launcher, get_environment);
      target.rank = place.rank;
      target.world_size = place.world_size;
      target.launcher = place.launcher;
    }
    if (uri == kEnvironmentUri) target.uri = read_address(launcher, get_environment);
    if (target.uri.starts_with(kPmixUri) && target.uri != kPmixUri) {
      fail(Status::kInvalidArgument, "\"{}\": pmix:// has nothing behind it; the launcher knows the rest", target.uri);
    }
    if (target.uri == kSlurmUri) target.uri = slurm_address(get_environment);
    if (target.uri.size() > wire::kMaxEndpointBytes) {
      fail(Status::kInvalidArgument, "an address of {} bytes, more than {}: give a shorter one", target.uri.size(),
           wire::kMaxEndpointBytes);
    }
  } catch (...) {
    throw current_error().add_context("rendezvous");
  }
  return target;
}

bool is_worker_name(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == ':';
  });
}

std::string default_name(int32_t rank) { return fmt::format("worker{}", rank); }

std::unique_ptr<Rendezvous> make_rendezvous(const std::string& uri, const RendezvousTools& tools) {
  const auto& [loop, transport, log, get_environment, http, board] = tools;
  if (uri.starts_with("tcp://")) return make_tcp_rendezvous(uri, loop, transport, log);
  if (uri.starts_with("file://")) return make_file_rendezvous(uri, loop, log);
  if (uri == "inproc://") {
    fail(Status::kInvalidArgument, "rendezvous \"inproc://\" has no name: give one, as in inproc://job");
  }
  if (uri.starts_with("inproc://")) return make_inproc_rendezvous(uri, loop, log);
  if (uri.starts_with("etcd://")) {
    if (!http) fail(Status::kUnsupported, "rendezvous \"{}\": no HTTP is available here", uri);
    return make_etcd_rendezvous(uri, read_etcd_settings(uri, get_environment), loop, transport, log, http());
  }
  if (uri.starts_with("pmix://")) {
    if (!board) fail(Status::kUnsupported, "rendezvous \"{}\": PMIx is not spoken here", uri);
    return make_pmix_rendezvous(uri, loop, log, board());
  }
  fail(Status::kInvalidArgument,
       "rendezvous \"{}\" is invalid: give env://, tcp://host:port, file:///dir, inproc://name, "
       "etcd://host:port/prefix, pmix:// or slurm://",
       uri);
}

}  // namespace distag
