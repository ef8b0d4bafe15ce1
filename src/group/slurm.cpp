#include "group/slurm.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace distag {
namespace {

constexpr size_t kLongestList = 65536;
constexpr size_t kLongestHost = 255;
constexpr size_t kMostParts = 4096;  // hosts and ranges
constexpr size_t kMostDigits = 9;    // digits of a number in a range
constexpr uint64_t kMostHosts = UINT32_MAX;

constexpr uint32_t kFirstPort = 20000;  // below the ephemeral ports of most systems, from 32768 on
constexpr uint32_t kPorts = 12768;
constexpr uint32_t kPortsOfAJob = 16;  // for steps of one job that run at the same time

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

// Reads from the left. Throws with the position of the first mismatch.
class HostListParser {
 public:
  explicit HostListParser(std::string_view text) : text_(text) {}

  HostList parse() {
    HostList list;
    do {
      count_part();
      std::string host;
      const uint64_t count = parse_hosts(host);
      if (list.first.empty()) list.first = host;
      list.count = std::min(list.count + count, kMostHosts);
    } while (take(','));
    if (place_ < text_.size()) refuse("a host ends with a comma");
    return list;
  }

 private:
  [[noreturn]] void refuse(const char* why) const {
    fail(Status::kInvalidArgument, "no list of hosts like \"n[1-3,7]\": {}, but not at character {}", why, place_ + 1);
  }

  void count_part() {
    if (++parts_ > kMostParts) {
      fail(Status::kInvalidArgument, "a list of more than {} hosts and ranges", kMostParts);
    }
  }

  bool take(char wanted) {
    if (place_ == text_.size() || text_[place_] != wanted) return false;
    ++place_;
    return true;
  }

  // "rack[0-1]n[01-10]": returns the number of hosts, and the first of them.
  uint64_t parse_hosts(std::string& first) {
    uint64_t count = 1;
    const size_t begin = place_;
    while (place_ < text_.size() && (is_letter(text_[place_]) || text_[place_] == '[')) {
      if (take('[')) {
        count = std::min(count * parse_ranges(first), kMostHosts);
      } else {
        first += text_[place_++];
      }
    }
    if (place_ == begin) refuse("a host begins with a letter, a digit or \"[\"");
    if (first.size() > kLongestHost) refuse("a name has at most 255 characters");
    return count;
  }

  uint64_t parse_ranges(std::string& first) {
    uint64_t count = 0;
    do {
      count_part();
      const std::string_view low = parse_digits();
      if (count == 0) first += low;
      const uint64_t from = number_of(low);
      const uint64_t to = take('-') ? number_of(parse_digits()) : from;
      if (to < from) refuse("a range goes upwards");
      count += to - from + 1;
    } while (take(','));
    if (!take(']')) refuse("ranges end with \"]\"");
    return std::min(count, kMostHosts);
  }

  std::string_view parse_digits() {
    const size_t begin = place_;
    while (place_ < text_.size() && text_[place_] >= '0' && text_[place_] <= '9') ++place_;
    if (place_ == begin || place_ - begin > kMostDigits) refuse("a range has numbers of 1 to 9 digits");
    return text_.substr(begin, place_ - begin);
  }

  static uint64_t number_of(std::string_view digits) {
    uint64_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
  }

  std::string_view text_;
  size_t place_ = 0;
  size_t parts_ = 0;
};

EnvironmentVariable need(const char* name, const EnvironmentReader& get_environment) {
  const char* const value = get_environment(name);
  if (value != nullptr && *value != '\0') return {name, value};
  fail(Status::kInvalidArgument, "slurm://: {} is not set: start the workers by srun, or set DISTAG_RENDEZVOUS", name);
}

}  // namespace

HostList parse_host_list(std::string_view text) {
  if (text.size() > kLongestList) {
    fail(Status::kInvalidArgument, "a list of hosts of {} bytes, more than {}", text.size(), kLongestList);
  }
  return HostListParser(text).parse();
}

std::string slurm_address(const EnvironmentReader& get_environment) {
  const EnvironmentVariable list = need("SLURM_STEP_NODELIST", get_environment);
  const auto job = static_cast<uint32_t>(read_number(need("SLURM_JOB_ID", get_environment), 0, INT32_MAX));
  const auto step = static_cast<uint32_t>(read_number(need(kSlurm.seen_by, get_environment), 0, INT32_MAX));
  HostList hosts;
  try {
    hosts = parse_host_list(list.value);
  } catch (...) {
    throw current_error().add_context("slurm://: " + list.name);
  }
  const uint32_t port = kFirstPort + (job % kPorts * kPortsOfAJob + step) % kPorts;
  return fmt::format("tcp://{}:{}", hosts.count == 1 ? "127.0.0.1" : hosts.first, port);
}

}  // namespace distag
