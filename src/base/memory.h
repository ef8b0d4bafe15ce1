#pragma once

#include <cstddef>

namespace distag {

// Blocks from this size on are made of huge pages where the system has them.
inline constexpr size_t kHugeBlockBytes = size_t{32} << 20;

// Bytes that the machine has, swap included. An allocator may promise more; the process dies when it uses that.
size_t machine_memory();

// The remedy when the system gives no memory, for texts.
inline constexpr const char* kMemoryCure =
    "free some, or raise the limit of memory (ulimit -v), or of mappings (vm.max_map_count) where much is mapped";

// Separate pages, which go back to the system as soon as they are unmapped, whatever malloc keeps. nullptr when there
// are none. `size` is a multiple of kPageBytes.
inline constexpr size_t kPageBytes = size_t{4} << 10;
void* map_pages(size_t size);
void unmap_pages(void* memory, size_t size);

// Asks for fewer, larger pages for fresh memory. Does nothing if there are none.
void prefer_huge_pages(void* memory, size_t size);

}  // namespace distag
