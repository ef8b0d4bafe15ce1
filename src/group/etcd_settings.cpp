#include "group/etcd_settings.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "base/regular_file.h"

namespace distag {
namespace {

using Getter = std::function<const char*(const char*)>;

constexpr std::string_view kScheme = "etcd://";
constexpr size_t kMostEndpoints = 16;
constexpr size_t kLongestPrefix = 255;
constexpr const char* kForm = "give it as etcd://host:port[,host:port]/prefix";

std::string variable(const char* name, const Getter& get_environment) {
  const char* const value = get_environment(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool is_port(std::string_view digits) {
  int port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return error == std::errc() && end == digits.data() + digits.size() && port >= 1 && port <= 65535;
}

bool is_host(std::string_view host) {
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string_view inner = has_brackets ? host.substr(1, host.size() - 2) : host;
  return !inner.empty() && std::all_of(inner.begin(), inner.end(), [has_brackets](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || (has_brackets && c == ':');
  });
}

bool is_endpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  return colon != std::string_view::npos && is_host(text.substr(0, colon)) && is_port(text.substr(colon + 1));
}

// Judged by the name alone.
bool is_on_this_machine(std::string_view endpoint) {
  const std::string_view host = endpoint.substr(0, endpoint.rfind(':'));
  const auto is_digit_or_dot = [](char c) { return c == '.' || (c >= '0' && c <= '9'); };
  const bool is_numeric = std::all_of(host.begin(), host.end(), is_digit_or_dot);
  return host == "localhost" || host == "[::1]" || (is_numeric && host.starts_with("127."));
}

struct Address {
  std::vector<std::string> endpoints;  // "host:port"
  std::string prefix;
};

// Errors quote the address only after it is known to contain no password.
Address parse(const std::string& uri) {
  std::string_view rest = std::string_view(uri).substr(kScheme.size());
  if (rest.find('@') != std::string_view::npos) {
    fail(Status::kInvalidArgument,
         "rendezvous \"etcd://...\": an address holds no user and no password: name them by DISTAG_ETCD_USER and "
         "DISTAG_ETCD_PASSWORD_FILE, and {}",
         kForm);
  }
  const size_t slash = rest.find('/');
  Address address;
  if (slash != std::string_view::npos) address.prefix = rest.substr(slash);
  rest = rest.substr(0, slash);
  for (size_t comma = 0; comma != std::string_view::npos; rest = rest.substr(comma + 1)) {
    comma = rest.find(',');
    address.endpoints.emplace_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) break;
  }
  while (address.prefix.ends_with('/')) address.prefix.pop_back();
  return address;
}

void check(const Address& address, const std::string& uri) {
  const auto& endpoints = address.endpoints;
  if (endpoints.size() > kMostEndpoints || !std::all_of(endpoints.begin(), endpoints.end(), is_endpoint)) {
    fail(Status::kInvalidArgument, "rendezvous \"{}\": {}, with up to {} endpoints", uri, kForm, kMostEndpoints);
  }
  const auto is_allowed = [](char c) { return c > ' ' && c <= '~' && c != '?' && c != '#' && c != '%' && c != '"'; };
  if (address.prefix.empty() || address.prefix.size() > kLongestPrefix ||
      !std::all_of(address.prefix.begin(), address.prefix.end(), is_allowed)) {
    fail(Status::kInvalidArgument,
         "rendezvous \"{}\": {}; the prefix has up to {} characters, and ? # % \" are none of them", uri, kForm,
         kLongestPrefix);
  }
}

void read_tls(EtcdSettings& settings, const Getter& get_environment) {
  settings.tls.authorities = variable("DISTAG_ETCD_CACERT", get_environment);
  settings.tls.certificate = variable("DISTAG_ETCD_CERT", get_environment);
  settings.tls.key = variable("DISTAG_ETCD_KEY", get_environment);
  if (settings.tls.certificate.empty() != settings.tls.key.empty()) {
    fail(Status::kInvalidArgument, "DISTAG_ETCD_CERT and DISTAG_ETCD_KEY are set together or not at all");
  }
  if (settings.tls.authorities.empty() && !settings.tls.certificate.empty()) {
    fail(Status::kInvalidArgument,
         "DISTAG_ETCD_CERT needs DISTAG_ETCD_CACERT: the certificates by which etcd is known; on Debian those of the "
         "system are in /etc/ssl/certs/ca-certificates.crt");
  }
}

void read_user(EtcdSettings& settings, const Address& address, const Getter& get_environment) {
  settings.user = variable("DISTAG_ETCD_USER", get_environment);
  const std::string file = variable("DISTAG_ETCD_PASSWORD_FILE", get_environment);
  if (settings.user.empty() != file.empty()) {
    fail(Status::kInvalidArgument, "DISTAG_ETCD_USER and DISTAG_ETCD_PASSWORD_FILE are set together or not at all");
  }
  if (settings.user.empty()) return;
  const bool is_near = std::all_of(address.endpoints.begin(), address.endpoints.end(), is_on_this_machine);
  if (!is_near && settings.tls.authorities.empty()) {
    fail(Status::kDenied,
         "the password of \"{}\" would go over the network in the clear: name the certificates of etcd by "
         "DISTAG_ETCD_CACERT, so that TLS is spoken",
         settings.user);
  }
  try {
    settings.password = read_private_file(file);
  } catch (...) {
    throw current_error().add_context("DISTAG_ETCD_PASSWORD_FILE");
  }
  while (settings.password.ends_with('\n') || settings.password.ends_with('\r')) settings.password.pop_back();
}

}  // namespace

EtcdSettings read_etcd_settings(const std::string& uri, const Getter& get_environment) {
  const Address address = parse(uri);
  check(address, uri);
  EtcdSettings settings;
  settings.prefix = address.prefix;
  read_tls(settings, get_environment);
  read_user(settings, address, get_environment);
  for (const std::string& endpoint : address.endpoints) {
    settings.endpoints.push_back((settings.tls.authorities.empty() ? "http://" : "https://") + endpoint);
  }
  return settings;
}

std::string find_way_to_etcd(const std::string& uri, const std::function<std::string(const std::string&)>& find_way) {
  if (uri.find('@') != std::string::npos) return {};  // an address with a user is refused later
  for (const std::string& endpoint : parse(uri).endpoints) {
    if (!is_endpoint(endpoint)) continue;
    try {
      std::string way = find_way("tcp://" + endpoint);
      if (!way.empty()) return way;
    } catch (...) {
      // The next server may be found.
    }
  }
  return {};
}

}  // namespace distag
