#pragma once

#include <string>
#include <string_view>

#include "run/descriptor.h"
#include "run/sink.h"

namespace distag_tool {

// Reads the output of one rank from a pipe and passes on whole lines, each with the rank before it. A line of more than
// 64 KiB is cut into several; a last line without an end gets one.
class Lines {
 public:
  Lines(Descriptor pipe, int rank, Sink& sink);

  int descriptor() const { return pipe_.get(); }  // -1 once the pipe has ended
  bool can_be_read() const { return pipe_.get() >= 0 && sink_->has_room(); }
  size_t read_some();  // called when poll reports data; gives the bytes
  void finish();       // passes on the rest of the pipe, and closes it: others may hold it open
  const std::string& last() const { return last_; }  // the last line that was not empty, its first 512 bytes

 private:
  void close();
  void take(std::string_view text);
  void pass_on(std::string_view line);

  Descriptor pipe_;
  Sink* sink_;
  std::string prefix_;
  std::string begun_;  // a line without its end
  std::string last_;
};

}  // namespace distag_tool
