#pragma once

#include <deque>
#include <string>
#include <string_view>

namespace distag_tool {

// Where lines go: standard output or standard error. Writes only what fits at once, so a reader who is slow or stops
// holds up nobody who waits for a signal.
class Sink {
 public:
  explicit Sink(int descriptor);

  int descriptor() const { return descriptor_; }
  bool has_colour() const { return has_colour_; }
  bool is_waiting() const { return !waiting_.empty(); }
  bool has_room() const { return waiting_.size() < kMostWaiting; }  // until then its writers are not read
  int failure() const { return failure_; }                          // errno of a write that failed: all is dropped then

  void add(std::string_view text);
  void write_some();  // when poll says that it takes some

 private:
  static constexpr size_t kMostWaiting = 1 << 20;

  int descriptor_;
  bool has_colour_;
  int failure_ = 0;
  std::string waiting_;
  size_t written_ = 0;  // of it
};

}  // namespace distag_tool
