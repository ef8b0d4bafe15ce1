#include "transport/shm/lane_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/file_size.h"
#include "base/memory.h"
#include "base/process.h"

namespace distag {
namespace {

constexpr uint32_t kLeastRing = 4u << 10;
constexpr uint32_t kLargestRing = 1u << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kForbiddenSeals = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

size_t total_bytes(const LaneSizes& sizes) { return kLaneControlBytes + sizes.there + sizes.back; }

bool takes_ring(uint32_t size) { return std::has_single_bit(size) && size >= kLeastRing && size <= kLargestRing; }

[[noreturn]] void fail_without_memory(const char* step) {
  fail(Status::kOutOfMemory, "{}: {}", step, describe_file_error(errno));
}

}  // namespace

void check_sealed_memory(int fd, uint64_t size) {
  constexpr int kWanted = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat status = {};
  struct statfs system = {};
  if (seals < 0 || (seals & kWanted) != kWanted) {
    fail(Status::kProtocol, "the descriptor is no memfd that can neither shrink nor grow");
  }
  if (fstat(fd, &status) != 0 || fstatfs(fd, &system) != 0 || !S_ISREG(status.st_mode) ||
      system.f_type != TMPFS_MAGIC) {
    fail(Status::kProtocol, "the descriptor is no memory of plain pages");
  }
  if (status.st_size < 0 || static_cast<uint64_t>(status.st_size) != size) {
    fail(Status::kProtocol, "the memory has {} bytes, which is not the size that was said", status.st_size);
  }
}

struct LaneMemory::Control {
  RingCounts there;
  RingCounts back;
  SleepWord dialler;
  SleepWord acceptor;
  alignas(kPageBytes) ReturnedLoan returned[kMaxLoans];
};

bool LaneMemory::takes(const LaneSizes& sizes) { return takes_ring(sizes.there) && takes_ring(sizes.back); }

LaneMemory LaneMemory::make(const LaneSizes& sizes) {
  LaneMemory memory(memfd_create("distag-lane", MFD_CLOEXEC | MFD_ALLOW_SEALING), sizes);
  if (memory.fd_ < 0) fail_without_memory("memfd_create");
  const auto total = static_cast<off_t>(total_bytes(sizes));
  if (set_file_size(memory.fd_, total) != 0) fail_without_memory("ftruncate of a memfd");
  // Allocates all pages before anything is written.
  if (const int error = allocate_file(memory.fd_, total); error != 0) {
    errno = error;
    fail_without_memory("posix_fallocate of a memfd");
  }
  if (fcntl(memory.fd_, F_ADD_SEALS, kSeals) != 0) fail_without_memory("seals of a memfd");
  memory.map();
  return memory;
}

LaneMemory LaneMemory::adopt(int fd, const LaneSizes& sizes) {
  LaneMemory memory(fd, sizes);
  if (!takes(sizes)) fail(Status::kProtocol, "a lane of {} and {} bytes", sizes.there, sizes.back);
  check_sealed_memory(fd, total_bytes(sizes));
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SEAL) == 0 || (seals & kForbiddenSeals) != 0) {
    fail(Status::kProtocol, "the descriptor is no memfd with the seals of a lane");
  }
  memory.map();
  memory.close_fd();
  return memory;
}

void LaneMemory::map() {
  void* const mapping = mmap(nullptr, total_bytes(sizes_), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapping == MAP_FAILED) fail_without_memory("mmap of a memfd");
  mapping_ = mapping;
  madvise(mapping_, total_bytes(sizes_), MADV_DONTFORK);
  static_assert(sizeof(Control) <= kLaneControlBytes);
}

LaneMemory::LaneMemory(int fd, const LaneSizes& sizes) : fd_(fd), sizes_(sizes), generation_(process_generation()) {}

LaneMemory::LaneMemory(LaneMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      sizes_(other.sizes_),
      generation_(other.generation_),
      mapping_(std::exchange(other.mapping_, nullptr)) {}

LaneMemory::~LaneMemory() {
  // In a forked child other memory may be mapped there.
  if (is_here()) munmap(mapping_, total_bytes(sizes_));
  close_fd();
}

void LaneMemory::close_fd() noexcept {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

// The pages begin as zeros, which are the initial counts.
LaneMemory::Control& LaneMemory::control() const { return *static_cast<Control*>(mapping_); }

std::byte* LaneMemory::ring_bytes(bool there) const {
  return static_cast<std::byte*>(mapping_) + kLaneControlBytes + (there ? 0 : sizes_.there);
}

RingWriter LaneMemory::writer(bool of_dialler) const {
  return {of_dialler ? control().there : control().back, ring_bytes(of_dialler),
          of_dialler ? sizes_.there : sizes_.back};
}

RingReader LaneMemory::reader(bool of_dialler) const {
  return {of_dialler ? control().back : control().there, ring_bytes(!of_dialler),
          of_dialler ? sizes_.back : sizes_.there};
}

ReturnedLoan& LaneMemory::returned(size_t number) const { return control().returned[number]; }

bool LaneMemory::is_here() const { return mapping_ != nullptr && generation_ == process_generation(); }

SleepWord& LaneMemory::sleep_of(bool dialler) const { return dialler ? control().dialler : control().acceptor; }

}  // namespace distag
