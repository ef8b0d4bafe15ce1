#include "base/process.h"

#include <unistd.h>

#include <array>
#include <atomic>

#include "base/regular_file.h"

#include "base/fork_handlers.h"

namespace distag {
namespace {

constinit std::atomic<uint32_t> generation{1};

void change_generation() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

constinit const ForkStep kGenerationStep = {nullptr, nullptr, change_generation};

uint32_t process_generation() { return generation.load(std::memory_order_relaxed); }

int64_t process_id() { return getpid(); }

// Containers of one machine share its boot id, and differ in their host names.
std::string host_id() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '\0';
  const std::string boot = read_system_file("/proc/sys/kernel/random/boot_id");
  return std::string(name.data()) + "/" + boot.substr(0, boot.find('\n'));
}

}  // namespace distag
