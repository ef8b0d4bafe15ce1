#include "group/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "group/rendezvous_etcd.h"
#include "group/rendezvous_file.h"
#include "group/rendezvous_inproc.h"
#include "group/rendezvous_tcp.h"

namespace distag {
namespace {

using Getter = std::function<const char*(const char*)>;

constexpr std::string_view kEnvironmentUri = "env://";

struct Variable {
  std::string name;
  std::string value;
};

// DISTAG_<name> goes before <name>.
std::optional<Variable> find_variable(const std::string& name, const Getter& get_environment) {
  for (const std::string& candidate : {"DISTAG_" + name, name}) {
    const char* value = get_environment(candidate.c_str());
    if (value != nullptr && *value != '\0') return Variable{candidate, value};
  }
  return std::nullopt;
}

// All that is wanted of the environment and missing there, at once.
void check_environment(bool wants_world, bool wants_address, const Getter& get_environment) {
  std::string missing;
  const auto want = [&missing](bool is_there, const char* text) {
    if (!is_there) missing += std::string(missing.empty() ? "" : ", ") + text;
  };
  if (wants_world) {
    const std::optional<Variable> size = find_variable("WORLD_SIZE", get_environment);
    want(size.has_value(), "WORLD_SIZE");
    const bool is_open = size && size->value.starts_with('-');
    want(is_open || find_variable("RANK", get_environment).has_value(), "RANK");
  }
  const char* const uri = get_environment("DISTAG_RENDEZVOUS");
  if (wants_address && (uri == nullptr || *uri == '\0')) {
    const bool has_host = find_variable("MASTER_ADDR", get_environment).has_value();
    const bool has_port = find_variable("MASTER_PORT", get_environment).has_value();
    want(has_host || has_port, "DISTAG_RENDEZVOUS (or MASTER_ADDR and MASTER_PORT)");
    want(has_host || !has_port, "MASTER_ADDR (or DISTAG_RENDEZVOUS)");
    want(has_port || !has_host, "MASTER_PORT (or DISTAG_RENDEZVOUS)");
  }
  if (missing.empty()) return;
  fail(Status::kInvalidArgument,
       "rendezvous: not set in the environment: {}; set each, with DISTAG_ before it or not, start by distag run, or "
       "give "
       "rank, world_size and rendezvous in the options",
       missing);
}

Variable get_variable(const std::string& name, const Getter& get_environment) {
  if (const std::optional<Variable> variable = find_variable(name, get_environment)) return *variable;
  fail(Status::kInvalidArgument, "rendezvous: {} is not set in the environment", name);
}

int32_t get_number(const std::string& name, int32_t least, int32_t most, const Getter& get_environment) {
  const Variable variable = get_variable(name, get_environment);
  const std::string& text = variable.value;
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
    fail(Status::kInvalidArgument, "rendezvous: {}=\"{}\" is no number in {} .. {}", variable.name, text, least, most);
  }
  return number;
}

// "env://" means DISTAG_RENDEZVOUS, or the address and the port that PyTorch's programs read.
std::string read_address(const Getter& get_environment) {
  const char* const uri = get_environment("DISTAG_RENDEZVOUS");
  if (uri != nullptr && *uri != '\0') {
    if (uri == kEnvironmentUri) fail(Status::kInvalidArgument, "rendezvous: DISTAG_RENDEZVOUS is \"env://\" itself");
    return uri;
  }
  const std::string host = get_variable("MASTER_ADDR", get_environment).value;
  int32_t port = get_number("MASTER_PORT", 1, 65535, get_environment);
  // The agent of torchrun listens at the port itself then, so rank 0 takes the next one, in each attempt.
  const char* const agent = get_environment("TORCHELASTIC_USE_AGENT_STORE");
  const bool is_taken = agent != nullptr && std::string_view(agent) == "True";
  if (is_taken && get_variable("MASTER_PORT", get_environment).name == "MASTER_PORT") port += port < 65535 ? 1 : -1;
  const bool needs_brackets = host.find(':') != std::string::npos && host.front() != '[';
  return needs_brackets ? fmt::format("tcp://[{}]:{}", host, port) : fmt::format("tcp://{}:{}", host, port);
}

}  // namespace

RendezvousTarget resolve_rendezvous(const std::string& uri, int32_t rank, int32_t world_size,
                                    const Getter& get_environment) {
  RendezvousTarget target{uri, rank, world_size};
  check_environment(world_size == 0, uri == kEnvironmentUri, get_environment);
  if (world_size == 0) {
    target.world_size = get_number("WORLD_SIZE", -1, INT32_MAX, get_environment);
    if (target.world_size == 0) fail(Status::kInvalidArgument, "rendezvous: WORLD_SIZE is 0; -1 is an open world");
    if (target.world_size > 0) {
      target.rank = get_number("RANK", 0, target.world_size - 1, get_environment);
    } else {
      target.rank = find_variable("RANK", get_environment) ? get_number("RANK", -1, INT32_MAX, get_environment) : -1;
    }
  } else if (world_size > 0 && (rank < 0 || rank >= world_size)) {
    fail(Status::kInvalidArgument, "rank {} is not in 0 .. {}", rank, world_size - 1);
  }
  if (uri == kEnvironmentUri) target.uri = read_address(get_environment);
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
  const auto& [loop, transport, log, get_environment, http] = tools;
  if (uri.starts_with("tcp://")) return make_tcp_rendezvous(uri, loop, transport, log);
  if (uri.starts_with("file://")) return make_file_rendezvous(uri, loop, log);
  if (uri == "inproc://") {
    fail(Status::kInvalidArgument, "rendezvous \"inproc://\" has no name: give one, as in inproc://job");
  }
  if (uri.starts_with("inproc://")) return make_inproc_rendezvous(uri, loop, log);
  if (uri.starts_with("etcd://")) {
    if (!http) fail(Status::kUnsupported, "rendezvous \"{}\": nobody speaks HTTP here", uri);
    return make_etcd_rendezvous(uri, read_etcd_settings(uri, get_environment), loop, transport, log, http());
  }
  if (uri.starts_with("pmix://")) {
    fail(Status::kUnsupported,
         "rendezvous \"{}\": PMIx is not spoken so far; take env://, tcp://host:port, file:///dir or "
         "etcd://host:port/prefix",
         uri);
  }
  fail(Status::kInvalidArgument,
       "rendezvous \"{}\" is none of env://, tcp://host:port, file:///dir, inproc://name and etcd://host:port/prefix",
       uri);
}

}  // namespace distag
