#pragma once

#include <deque>
#include <string>
#include <string_view>

namespace distag_tool {

// The target of lines: standard output or standard error. Writes only as much as fits at once, so that a slow or
// stopped reader does not delay the handling of signals.
class Sink {
 public:
  explicit Sink(int descriptor);

  int descriptor() const { return descriptor_; }
  bool has_colour() const { return has_colour_; }
  bool is_waiting() const { return !waiting_.empty(); }
  bool has_room() const { return waiting_.size() < kMostWaiting; }  // without room, the writers are not read
  int failure() const { return failure_; }                          // errno of a failed write, which drops all output

  void add(std::string_view text);
  void write_some();  // called when poll reports room

 private:
  static constexpr size_t kMostWaiting = 1 << 20;

  int descriptor_;
  bool has_colour_;
  int failure_ = 0;
  std::string waiting_;
  size_t written_ = 0;  // bytes of waiting_
};

}  // namespace distag_tool
