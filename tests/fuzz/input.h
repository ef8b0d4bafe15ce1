#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace distag::fuzz {

// A property that held for no input until now.
inline void check(bool holds) {
  if (!holds) __builtin_trap();
}

// The bytes of a fuzzer as numbers and texts, from the front; zeros behind the end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return next_ == size_; }
  uint8_t byte() { return next_ < size_ ? data_[next_++] : uint8_t{0}; }
  size_t below(size_t bound) { return byte() % bound; }
  bool flag() { return byte() % 2 != 0; }

  // Mostly -3 to 5. The others are beyond any address space, so that no test takes gigabytes.
  int64_t integer() {
    constexpr int64_t kExtreme[] = {
        INT64_MIN, INT64_MIN + 1, -(int64_t{1} << 40), int64_t{1} << 47, int64_t{1} << 62, INT64_MAX - 1, INT64_MAX};
    const uint8_t kind = byte();
    return kind < 225 ? kind % 9 - 3 : kExtreme[kind % std::size(kExtreme)];
  }
  double number() {
    constexpr double kExtreme[] = {-0.0,    0.5,    1e300,   -1e300, -INFINITY, NAN,    INFINITY, 0x1p63,
                                   -0x1p63, 9.2e18, -9.2e18, 5e-324, -0x1p-80,  0x1p53, 1e-3};
    const uint8_t kind = byte();
    return kind < 128 ? kind % 9 - 3 : kExtreme[kind % std::size(kExtreme)];
  }
  std::vector<int64_t> integers(size_t most) {
    std::vector<int64_t> items(below(most + 1));
    std::generate(items.begin(), items.end(), [this] { return integer(); });
    return items;
  }

  // All that is left.
  std::string rest() { return text(size_ - next_); }
  // Up to a line feed, behind which the next one begins.
  std::string line() {
    const uint8_t* const end = std::find(data_ + next_, data_ + size_, '\n');
    std::string result = text(static_cast<size_t>(end - data_) - next_);
    byte();
    return result;
  }

 private:
  std::string text(size_t length) {
    std::string result(reinterpret_cast<const char*>(data_) + next_, length);
    next_ += length;
    return result;
  }

  const uint8_t* const data_;
  const size_t size_;
  size_t next_ = 0;
};

}  // namespace distag::fuzz
