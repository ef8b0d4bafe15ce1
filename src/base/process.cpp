#include "base/process.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>

namespace distag {
namespace {

// 0: not asked for yet. No destructor; the C library forgets the handler when the library is unloaded.
std::atomic<uint32_t> generation{0};

void on_fork_in_child() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

uint32_t process_generation() {
  const uint32_t now = generation.load(std::memory_order_relaxed);
  if (now != 0) return now;
  uint32_t unasked = 0;
  if (generation.compare_exchange_strong(unasked, 1)) pthread_atfork(nullptr, nullptr, on_fork_in_child);
  return generation.load(std::memory_order_relaxed);
}

int64_t process_id() { return getpid(); }

// Containers of one machine share its boot, and differ in their names.
std::string host_id() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '\0';
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return std::string(name.data()) + "/" + boot;
}

}  // namespace distag
