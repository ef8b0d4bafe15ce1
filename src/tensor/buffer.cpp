#include "tensor/buffer.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "base/block_pool.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/reserve.h"
#include "base/shared_memory.h"

namespace distag {
namespace {

constexpr size_t kAlignment = 64;

constexpr size_t align_up(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// A block holds the buffer, the address of the allocation (null: a block of the pool), and the bytes.
constexpr size_t kOwnerAt = sizeof(Buffer);
constexpr size_t kHeader = align_up(sizeof(Buffer) + sizeof(void*));

// Memory of operator new, or of the reserve, is only aligned to max_align_t. (aligned_alloc costs five times as much.)
constexpr size_t kSlack = kAlignment - alignof(std::max_align_t);

// From this size on bytes lie in blocks of the pool. Under the address sanitizer none do, since it checks only memory
// of malloc.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kLeastPooled = SIZE_MAX;
#else
constexpr size_t kLeastPooled = size_t{64} << 10;
#endif

constexpr size_t whole_size(size_t size) { return kHeader + align_up(size); }

// From this size on, an allocation is first compared with the memory of the machine.
constexpr size_t kLeastChecked = size_t{1} << 30;

bool may_be_there(size_t size) {
  return size < kLeastChecked || (size <= SIZE_MAX - kHeader - 2 * kAlignment && size <= machine_memory());
}

void* allocate_block(size_t size) {
  void* block = nullptr;
  void* owner = nullptr;
  if (may_be_there(size)) {
    const size_t whole = whole_size(size);
    if (size >= kLeastPooled) {
      block = take_block(whole);
      if (block == nullptr) {
        shared_memory::drop_idle();
        block = take_block(whole);
      }
    } else {
      owner = ::operator new(whole + kSlack, std::nothrow);
    }
    if (block == nullptr && owner == nullptr && current_reserve() != nullptr) {
      owner = current_reserve()->take(whole + kSlack);
    }
    if (owner != nullptr) block = reinterpret_cast<void*>(align_up(reinterpret_cast<uintptr_t>(owner)));
  }
  if (block == nullptr) fail(Status::kOutOfMemory, "no memory for a buffer of {} bytes: {}", size, kMemoryCure);
  std::memcpy(static_cast<std::byte*>(block) + kOwnerAt, &owner, sizeof owner);
  return block;
}

}  // namespace

BufferRef Buffer::allocate(size_t size) {
  if (std::byte* const place = may_be_there(size) ? shared_memory::allocate(size) : nullptr) {
    try {
      return make_foreign(Kind::kShared, place, size, {});
    } catch (...) {
      shared_memory::free(place);
      throw;
    }
  }
  return allocate_private(size);
}

BufferRef Buffer::allocate_private(size_t size) {
  void* block = allocate_block(size);
  return BufferRef(::new (block) Buffer(Kind::kOwn, static_cast<std::byte*>(block) + kHeader, size, {}));
}

BufferRef Buffer::make_foreign(Kind kind, const void* data, size_t size, Task release) {
  void* block = allocate_block(0);
  // Written only if is_writable().
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return BufferRef(::new (block) Buffer(kind, bytes, size, std::move(release)));
}

BufferRef Buffer::borrow(const void* data, size_t size, Task release) {
  return make_foreign(Kind::kBorrowed, data, size, std::move(release));
}

BufferRef Buffer::adopt(const void* data, size_t size, Task release) {
  return make_foreign(Kind::kAdopted, data, size, std::move(release));
}

BufferRef Buffer::adopt_protected(const void* data, size_t size, Task release) {
  return make_foreign(Kind::kProtected, data, size, std::move(release));
}

bool Buffer::is_writable_where_shared() const { return shared_memory::is_writable(data_); }

void Buffer::release() {
  if (holders_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Task last = std::move(release_);
  if (kind_ == Kind::kShared) shared_memory::free(data_);
  const size_t size = size_;
  void* owner = nullptr;
  std::memcpy(&owner, reinterpret_cast<std::byte*>(this) + kOwnerAt, sizeof owner);
  this->~Buffer();
  if (owner != nullptr) {
    ::operator delete(owner);
  } else {
    give_back_block(this, whole_size(size));
  }
  if (last) last();
}

}  // namespace distag
