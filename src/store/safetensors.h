#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dims.h"
#include "tensor/dtype.h"

// The format of https://github.com/huggingface/safetensors: the size of a header as 8 bytes, little-endian; the header
// in JSON; then the elements, row-major, without gaps. Pure: bytes in, bytes out.
namespace distag::store {

inline constexpr uint64_t kMostHeader = 100'000'000;

// A dtype that other writers store and that tensors lack: its elements are not read.
struct OtherDtype {
  const char* name;
  uint64_t bits;  // of one element
  Dtype nearest;
};
const OtherDtype* find_other_dtype(std::string_view name);  // nullptr: none
inline constexpr const char* kDtypesRead = "F32, F64, I64 and BOOL are read";

struct StoredTensor {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  Dims shape;
  uint64_t begin = 0;                 // behind the header; print_header() sets them without gaps
  const OtherDtype* other = nullptr;  // its real dtype, if tensors lack it; `dtype` is then the nearest
  uint64_t size() const;
};

const char* stored_name(Dtype dtype);  // "F32"
// The text includes the eight bytes before the header; its size is a multiple of 8. Sets `begin` of each tensor.
std::string print_header(std::vector<StoredTensor>& tensors);
// The size of the header that begins with these eight bytes. Throws PROTOCOL if a file of that size cannot hold it.
uint64_t header_size(const std::byte* first_eight, uint64_t file_size, const std::string& file);
// Calls visit(tensor) for the tensors of a header, in their order there. Throws PROTOCOL naming file and entry, also
// once all were visited, as for elements that lie over others. Takes a few times the memory of the names.
void parse_header(std::string_view header, uint64_t data_size, const std::string& file,
                  const std::function<void(const StoredTensor&)>& visit);

// The crc of gzip and of Python's zlib; `sum`: the crc of the bytes before, 0 at first.
uint32_t crc32_of(uint32_t sum, const void* data, size_t size);

// count * item size, or nullopt for a shape that is negative or too large to count.
std::optional<uint64_t> bytes_of(std::span<const int64_t> shape, Dtype dtype);

}  // namespace distag::store
