#pragma once

#include <cstddef>

namespace distag {

// Blocks from this size on are made of huge pages where the system has them.
inline constexpr size_t kHugeBlockBytes = size_t{32} << 20;

// Bytes that the machine has, swap included. An allocator may promise more, and the process dies when it is used.
size_t machine_memory();

// Shows malloc a block of kHugeBlockBytes that was freed. By its own rule glibc then takes blocks up to that size from
// its heaps, and keeps their pages when they are freed, instead of asking the system for fresh ones each time. Settings
// that the host has made for malloc stay in force.
void keep_freed_pages();

// Fewer, larger pages for fresh memory. Does nothing where it cannot be had.
void prefer_huge_pages(void* memory, size_t size);

}  // namespace distag
