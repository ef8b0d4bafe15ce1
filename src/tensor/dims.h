#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace distag {

inline constexpr size_t kMaxRank = 16;

// A shape, strides or a list of dims: at most kMaxRank numbers, held in place.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> items) : Dims(std::span<const int64_t>(items.begin(), items.size())) {}
  // Throws INVALID_ARGUMENT for more than kMaxRank items.
  explicit Dims(std::span<const int64_t> items);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return items_.data(); }
  const int64_t* data() const { return items_.data(); }
  int64_t& operator[](size_t i) { return items_[i]; }
  int64_t operator[](size_t i) const { return items_[i]; }
  int64_t* begin() { return items_.data(); }
  int64_t* end() { return items_.data() + size_; }
  const int64_t* begin() const { return items_.data(); }
  const int64_t* end() const { return items_.data() + size_; }
  int64_t back() const { return items_[size_ - 1]; }
  void push_back(int64_t item);  // throws INVALID_ARGUMENT past kMaxRank
  void pop_back() { --size_; }
  void resize(size_t size, int64_t fill = 0);
  operator std::span<const int64_t>() const { return {items_.data(), size_}; }
  bool operator==(const Dims& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  std::array<int64_t, kMaxRank> items_{};
  size_t size_ = 0;
};

// "[2, 3]"
std::string to_string(const Dims& dims);

// Product of all sizes. Throws INVALID_ARGUMENT for a negative size or when the count times item_size overflows.
int64_t element_count(const Dims& shape, size_t item_size = 1);

// Strides in elements of a row-major array.
Dims row_major_strides(const Dims& shape);

}  // namespace distag
