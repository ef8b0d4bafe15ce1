#include "tensor/buffer.h"

#include <cstdint>
#include <cstdlib>
#include <new>

#include "base/error.h"
#include "base/memory.h"

namespace distag {
namespace {

constexpr size_t kAlignment = 64;
// One block holds the buffer and, after it, its bytes.
constexpr size_t kHeader = (sizeof(Buffer) + kAlignment - 1) / kAlignment * kAlignment;

// From this size on it is asked whether the machine has so much at all.
constexpr size_t kLeastChecked = size_t{1} << 30;

void* allocate_block(size_t size) {
  void* block = nullptr;
  if (size < kLeastChecked || (size <= SIZE_MAX - kHeader - kAlignment && size <= machine_memory())) {
    block = std::aligned_alloc(kAlignment, kHeader + (size + kAlignment - 1) / kAlignment * kAlignment);
  }
  if (block == nullptr) fail(Status::kOutOfMemory, "no memory for a buffer of {} bytes", size);
  if (size >= kHugeBlockBytes) prefer_huge_pages(block, size);
  return block;
}

}  // namespace

BufferRef Buffer::allocate(size_t size) {
  void* block = allocate_block(size);
  return BufferRef(::new (block) Buffer(Kind::kOwn, static_cast<std::byte*>(block) + kHeader, size, {}));
}

BufferRef Buffer::make_foreign(Kind kind, const void* data, size_t size, Task release) {
  void* block = allocate_block(0);
  // Never written through: is_writable() is false for every kind but kOwn.
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return BufferRef(::new (block) Buffer(kind, bytes, size, std::move(release)));
}

BufferRef Buffer::borrow(const void* data, size_t size, Task release) {
  return make_foreign(Kind::kBorrowed, data, size, std::move(release));
}

BufferRef Buffer::adopt(const void* data, size_t size, Task release) {
  return make_foreign(Kind::kAdopted, data, size, std::move(release));
}

void Buffer::release() {
  if (holders_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Task last = std::move(release_);
  this->~Buffer();
  std::free(this);
  if (last) last();
}

}  // namespace distag
