// Arguments that are lists: views that live as long as the call.
#ifndef DISTAG_LISTS_HPP
#define DISTAG_LISTS_HPP

#include <array>
#include <initializer_list>
#include <limits>
#include <optional>
#include <vector>

#include "status.hpp"

namespace distag {

class tensor;

// Shapes, strides, dims: {2, 3}, a std::vector or a std::array of int64, or memory.
class ints {
 public:
  constexpr ints() noexcept = default;
  constexpr ints(std::initializer_list<std::int64_t> items) noexcept : ints(items.begin(), items.size()) {}
  ints(const std::vector<std::int64_t>& items) noexcept : ints(items.data(), items.size()) {}
  template <std::size_t N>
  constexpr ints(const std::array<std::int64_t, N>& items) noexcept : ints(items.data(), N) {}
  constexpr ints(const std::int64_t* data, std::size_t size) noexcept : data_(data), size_(size) {}

  constexpr const std::int64_t* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr const std::int64_t* begin() const noexcept { return data_; }
  constexpr const std::int64_t* end() const noexcept { return data_ + size_; }
  constexpr std::int64_t operator[](std::size_t index) const noexcept { return data_[index]; }
  std::vector<std::int64_t> to_vector() const { return {begin(), end()}; }

  friend bool operator==(ints a, ints b) noexcept {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i) {
      if (a.data_[i] != b.data_[i]) return false;
    }
    return true;
  }
  friend bool operator!=(ints a, ints b) noexcept { return !(a == b); }

 private:
  const std::int64_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// Several tensors: {a, b}, a std::vector of them, or one.
class tensors {
 public:
  tensors() noexcept = default;
  tensors(std::initializer_list<tensor> items) noexcept;
  tensors(const std::vector<tensor>& items) noexcept;
  tensors(const tensor& item) noexcept;

  distag_tensor* const* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  tensors(const tensor* data, std::size_t size) noexcept;

  distag_tensor* const* data_ = nullptr;
  std::size_t size_ = 0;
};

// An input that may be left out: {}, or a tensor.
class tensor_or_none {
 public:
  tensor_or_none() noexcept = default;
  tensor_or_none(const tensor& given) noexcept;

  explicit operator bool() const noexcept { return raw_ != nullptr; }
  distag_tensor* get() const noexcept { return raw_; }

 private:
  distag_tensor* raw_ = nullptr;
};

namespace detail {
constexpr double infinity = std::numeric_limits<double>::infinity();
}

}  // namespace distag

#endif
