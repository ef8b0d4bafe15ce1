#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/file_size.h"
#include "base/fork_handlers.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/regular_file.h"

namespace distag {
namespace {

// The system gives out the lowest number that is free. Sockets need descriptors more than tensors do.
bool leaves_descriptors(int fd) {
  constexpr rlim_t kLeft = 64;
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(fd) + kLeft <= limit.rlim_cur;
}

// If the system promises no more memory than it has, it counts that of a memfd only once it is touched, and a lack then
// would end the process.
bool is_memory_promised_freely() { return !read_system_file("/proc/sys/vm/overcommit_memory").starts_with('2'); }

}  // namespace

SharedBlock::SharedBlock(uint64_t id, size_t size) : id_(id), size_(size) {
  const auto give_up = [this](const char* step) {
    const int error = errno;
    close();
    fail(Status::kOutOfMemory, "{} of {} bytes to share: {}", step, size_, describe_file_error(error));
  };
  fd_ = memfd_create("distag-block", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) give_up("memfd_create");
  if (!leaves_descriptors(fd_)) give_up("too few descriptors are left for");
  if (set_file_size(fd_, static_cast<off_t>(size)) != 0) give_up("ftruncate");
  void* const mapping = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapping == MAP_FAILED) give_up("mmap");
  data_ = static_cast<std::byte*>(mapping);
  // Sealed after the only writable mapping is made.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (fcntl(fd_, F_ADD_SEALS, kSeals) != 0) give_up("seals");
}

void SharedBlock::close() noexcept {
  if (data_ != nullptr) munmap(std::exchange(data_, nullptr), size_);
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

namespace shared_memory {
namespace {

// Blocks are cut into places of one size: this many, if a block then has a usual size.
constexpr size_t kPlaces = 16;
constexpr size_t kMaxPlaces = 32;  // for the smallest size
constexpr size_t kLeastBlock = size_t{2} << 20;
constexpr size_t kLargestBlock = size_t{32} << 20;
// Larger places have a block of their own.
constexpr size_t kLargestPlace = size_t{8} << 20;
// Each block takes a descriptor.
constexpr size_t kMaxBlocks = 256;
// Bytes of empty blocks; more if more is in use.
constexpr size_t kMaxIdleBytes = size_t{256} << 20;

// Sizes that differ by less than an eighth share places.
size_t capacity_for(size_t size) {
  size_t step = kPageBytes;
  while (step * 16 < size) step *= 2;
  return (size + step - 1) / step * step;
}

static_assert(kLeastBlock / kLeastBytes == kMaxPlaces);

size_t block_size_for(size_t capacity) {
  if (capacity > kLargestPlace) return capacity;
  const size_t wanted = std::clamp(capacity * kPlaces, kLeastBlock, kLargestBlock);
  return wanted / capacity * capacity;
}

enum class State : uint8_t { kFree, kUsed, kAbandoned, kAbandonedAndFree };

struct Block {
  std::shared_ptr<SharedBlock> memory;
  size_t capacity = 0;
  std::vector<State> places;
  size_t used = 0;       // places
  bool is_fresh = true;  // something has lain here since the last trim

  const std::byte* place(size_t index) const { return memory->data() + index * capacity; }
};

using Blocks = std::map<const std::byte*, Block>;  // by their first byte
using Memory = std::shared_ptr<SharedBlock>;

struct Pool {
  size_t uses = 0;
  Blocks blocks;
  std::map<size_t, std::vector<std::byte*>> free;  // by capacity; the last one was used last
  size_t bytes = 0;
  size_t bytes_in_use = 0;
  const size_t most_bytes = machine_memory();
  Pool* of_parent = nullptr;  // the pool before the fork

  size_t idle_bytes() const {
    size_t idle = 0;
    for (const auto& [data, block] : blocks) idle += block.used == 0 ? block.memory->size() : 0;
    return idle;
  }
  // A forked child may read there for as long as it lives.
  void abandon_all() noexcept {
    for (auto& [data, block] : blocks) {
      for (State& state : block.places) {
        if (state == State::kUsed) state = State::kAbandoned;
      }
    }
  }
  Blocks::iterator find(const std::byte* data) {
    auto after = blocks.upper_bound(data);
    if (after == blocks.begin()) return blocks.end();
    const auto found = std::prev(after);
    return data < found->first + found->second.memory->size() ? found : blocks.end();
  }
  std::byte* take(size_t capacity);
  void add(Memory memory, size_t capacity);
  Memory take_out(Blocks::iterator block) noexcept;
  // Takes out an empty block; `only_stale`: one that has been empty since the last trim. Else nullptr.
  Memory take_out_idle(bool only_stale) noexcept;
};

// The innermost of all locks. No destructor: buffers may be freed at the end of the process.
constinit Mutex g_mutex;
constinit Pool* g_pool GUARDED_BY(g_mutex) = nullptr;
constinit size_t g_forks GUARDED_BY(g_mutex) = 0;  // under way
std::atomic<bool> g_is_used{false};
std::atomic<size_t> g_blocks{0};
std::atomic<uint64_t> g_last_id{0};

// The lock is not held until the fork: the loop needs it for each frame that it lends, and other fork handlers may wait
// for long. Instead no place is given out from here on, so that the child sees none but the abandoned ones.
void before_fork() {
  MutexLock lock(g_mutex);
  ++g_forks;
  if (g_pool != nullptr) g_pool->abandon_all();
}
void after_fork() {
  MutexLock lock(g_mutex);
  --g_forks;
}
// The parent's blocks stay mapped, and are not found any more. A thread that does not exist here may have held the
// lock, and have left the pool half changed.
void after_fork_in_child() NO_THREAD_SAFETY_ANALYSIS {
  new (&g_mutex) Mutex;
  g_forks = 0;
  g_is_used.store(false, std::memory_order_relaxed);
  g_blocks.store(0, std::memory_order_relaxed);
  if (g_pool != nullptr) {
    // The list keeps it within reach of who looks for leaks.
    static Pool* parents = nullptr;
    g_pool->of_parent = std::exchange(parents, g_pool);
    g_pool = nullptr;
  }
}

std::byte* Pool::take(size_t capacity) {
  const auto shelf = free.find(capacity);
  if (shelf == free.end() || shelf->second.empty()) return nullptr;
  std::byte* const place = shelf->second.back();
  shelf->second.pop_back();
  Block& block = find(place)->second;
  block.places[static_cast<size_t>(place - block.memory->data()) / capacity] = State::kUsed;
  block.is_fresh = true;
  ++block.used;
  bytes_in_use += capacity;
  return place;
}

void Pool::add(Memory memory, size_t capacity) {
  const size_t count = memory->size() / capacity;
  std::vector<std::byte*>& shelf = free[capacity];
  shelf.reserve((blocks.size() + 1) * kMaxPlaces);  // then freeing a place needs no memory
  Block block{memory, capacity, std::vector<State>(count, State::kFree), 0, true};
  const auto added = blocks.emplace(memory->data(), std::move(block)).first;
  for (size_t i = count; i-- > 0;) shelf.push_back(const_cast<std::byte*>(added->second.place(i)));
  bytes += memory->size();
  g_blocks.store(blocks.size(), std::memory_order_relaxed);
}

Memory Pool::take_out(Blocks::iterator found) noexcept {
  Block& block = found->second;
  Memory memory = std::move(block.memory);
  memory->retire();
  const std::byte* const begin = found->first;
  const std::byte* const end = begin + memory->size();
  std::erase_if(free.find(block.capacity)->second,
                [begin, end](const std::byte* place) { return place >= begin && place < end; });
  bytes -= memory->size();
  blocks.erase(found);
  g_blocks.store(blocks.size(), std::memory_order_relaxed);
  return memory;
}

Memory Pool::take_out_idle(bool only_stale) noexcept {
  for (auto found = blocks.begin(); found != blocks.end(); ++found) {
    if (found->second.used == 0 && !(only_stale && found->second.is_fresh)) return take_out(found);
  }
  return nullptr;
}

// Deletes the pool once it has neither a Use nor a block.
void tidy() REQUIRES(g_mutex) {
  if (g_pool == nullptr || g_pool->uses != 0 || !g_pool->blocks.empty()) return;
  delete std::exchange(g_pool, nullptr);
}

bool may_give_out() REQUIRES(g_mutex) { return g_pool != nullptr && g_pool->uses != 0 && g_forks == 0; }

// Whether there is room for one more block. Above the limits empty blocks are closed first.
bool make_room(size_t size, bool may_close) {
  for (;;) {
    Memory idle;
    {
      MutexLock lock(g_mutex);
      if (!may_give_out()) return false;
      if (g_pool->bytes + size > g_pool->most_bytes) return false;
      const size_t most = std::max(kMaxIdleBytes, g_pool->bytes_in_use);
      if (g_pool->blocks.size() < kMaxBlocks && g_pool->idle_bytes() + size <= most) return true;
      if (!may_close) return false;
      idle = g_pool->take_out_idle(false);
      if (idle == nullptr) return g_pool->blocks.size() < kMaxBlocks;
    }
    idle->close();
  }
}

std::byte* take(size_t capacity) {
  MutexLock lock(g_mutex);
  return may_give_out() ? g_pool->take(capacity) : nullptr;
}

// Takes out an empty block while there is no Use; nullptr: no such block.
Memory take_out_unused() {
  MutexLock lock(g_mutex);
  if (g_pool == nullptr || g_pool->uses != 0) return nullptr;
  Memory idle = g_pool->take_out_idle(false);
  if (idle == nullptr) tidy();
  return idle;
}

std::byte* allocate_or_throw(size_t size, bool may_close) {
  const size_t capacity = capacity_for(size);
  if (std::byte* const place = take(capacity)) return place;
  if (!make_room(block_size_for(capacity), may_close)) return nullptr;
  Memory block = std::make_shared<SharedBlock>(g_last_id.fetch_add(1) + 1, block_size_for(capacity));
  MutexLock lock(g_mutex);
  if (!may_give_out()) return nullptr;
  g_pool->add(std::move(block), capacity);
  return g_pool->take(capacity);
}

}  // namespace

Use::Use() : generation_(process_generation()) {
  const bool is_free = is_memory_promised_freely();
  check_forks_are_watched();
  MutexLock lock(g_mutex);
  if (g_pool == nullptr) g_pool = new Pool;
  ++g_pool->uses;
  g_is_used.store(is_free, std::memory_order_relaxed);
}

Use::~Use() {
  if (generation_ != process_generation()) return;
  {
    MutexLock lock(g_mutex);
    if (--g_pool->uses != 0) return;
    g_is_used.store(false, std::memory_order_relaxed);
  }
  while (const Memory idle = take_out_unused()) idle->close();
}

std::byte* allocate(size_t size, bool may_close) noexcept {
  if (size < kLeastBytes || !g_is_used.load(std::memory_order_relaxed) || size > SIZE_MAX / 4) return nullptr;
  try {
    return allocate_or_throw(size, may_close);
  } catch (...) {
    return nullptr;  // there is other memory
  }
}

void free(std::byte* place) noexcept {
  Memory idle;
  {
    MutexLock lock(g_mutex);
    if (g_pool == nullptr) return;
    const auto found = g_pool->find(place);
    if (found == g_pool->blocks.end()) return;
    Block& block = found->second;
    State& state = block.places[static_cast<size_t>(place - found->first) / block.capacity];
    if (state == State::kUsed) {
      state = State::kFree;
      g_pool->free.find(block.capacity)->second.push_back(place);
    } else {
      state = State::kAbandonedAndFree;
    }
    block.is_fresh = true;
    g_pool->bytes_in_use -= block.capacity;
    if (--block.used != 0 || g_pool->uses != 0) return;
    idle = g_pool->take_out(found);
    tidy();
  }
  idle->close();
}

std::optional<Found> find(const std::byte* data, size_t size) noexcept {
  if (!has_blocks()) return std::nullopt;
  MutexLock lock(g_mutex);
  if (g_pool == nullptr) return std::nullopt;
  const auto found = g_pool->find(data);
  if (found == g_pool->blocks.end()) return std::nullopt;
  const auto offset = static_cast<size_t>(data - found->first);
  if (size > found->second.memory->size() - offset) return std::nullopt;
  return Found{found->second.memory, offset};
}

void abandon(const std::byte* place) noexcept {
  MutexLock lock(g_mutex);
  if (g_pool == nullptr) return;
  const auto found = g_pool->find(place);
  if (found == g_pool->blocks.end()) return;
  State& state = found->second.places[static_cast<size_t>(place - found->first) / found->second.capacity];
  if (state == State::kUsed) state = State::kAbandoned;
}

bool is_writable(const std::byte* place) noexcept {
  MutexLock lock(g_mutex);
  if (g_pool == nullptr) return false;
  const auto found = g_pool->find(place);
  if (found == g_pool->blocks.end()) return false;
  return found->second.places[static_cast<size_t>(place - found->first) / found->second.capacity] == State::kUsed;
}

std::vector<std::shared_ptr<SharedBlock>> trim() {
  std::vector<Memory> retired;
  MutexLock lock(g_mutex);
  if (g_pool == nullptr) return retired;
  retired.reserve(g_pool->blocks.size());
  while (Memory idle = g_pool->take_out_idle(true)) retired.push_back(std::move(idle));
  for (auto& [data, block] : g_pool->blocks) block.is_fresh = false;
  return retired;
}

std::vector<std::shared_ptr<SharedBlock>> take_idle() {
  std::vector<Memory> retired;
  MutexLock lock(g_mutex);
  if (g_pool == nullptr) return retired;
  retired.reserve(g_pool->blocks.size());
  while (Memory idle = g_pool->take_out_idle(false)) retired.push_back(std::move(idle));
  return retired;
}

void drop_idle() noexcept {
  for (;;) {
    Memory idle;
    {
      MutexLock lock(g_mutex);
      if (g_pool != nullptr) idle = g_pool->take_out_idle(false);
    }
    if (idle == nullptr) return;
    idle->close();
  }
}

bool has_blocks() noexcept { return g_blocks.load(std::memory_order_relaxed) != 0; }

Stats stats() noexcept {
  MutexLock lock(g_mutex);
  if (g_pool == nullptr) return {};
  return {g_pool->blocks.size(), g_pool->bytes, g_pool->bytes_in_use};
}

}  // namespace shared_memory

constinit const ForkStep kSharedMemoryStep = {shared_memory::before_fork, shared_memory::after_fork,
                                              shared_memory::after_fork_in_child};

}  // namespace distag
