#include "base/process_memory.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace distag {

bool read_process_memory(int64_t process, std::span<const MemoryPiece> pieces) {
  constexpr size_t kMost = 4;
  if (pieces.size() > kMost) return false;
  std::array<iovec, kMost> here{};
  std::array<iovec, kMost> there{};
  ssize_t wanted = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    here[i] = {pieces[i].out, pieces[i].size};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in another process
    there[i] = {reinterpret_cast<void*>(static_cast<uintptr_t>(pieces[i].address)), pieces[i].size};
    wanted += static_cast<ssize_t>(pieces[i].size);
  }
  return process_vm_readv(static_cast<pid_t>(process), here.data(), pieces.size(), there.data(), pieces.size(), 0) ==
         wanted;
}

int64_t this_process() { return getpid(); }

bool belongs_to_this_user(int64_t process) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%lld", static_cast<long long>(process));
  struct stat status {};
  return stat(path.data(), &status) == 0 && status.st_uid == geteuid();
}

}  // namespace distag
