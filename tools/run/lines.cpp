#include "run/lines.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace distag_tool {
namespace {

constexpr size_t kLongestLine = 64 << 10;
constexpr size_t kLongestKept = 512;
constexpr std::array kColours = {36, 33, 32, 35, 34, 31};  // cyan, yellow, green, magenta, blue, red

std::string make_prefix(int rank, bool has_colour) {
  const std::string plain = "[" + std::to_string(rank) + "]";
  if (!has_colour) return plain + " ";
  const int colour = kColours[static_cast<size_t>(rank) % kColours.size()];
  return "\033[" + std::to_string(colour) + "m" + plain + "\033[0m ";
}

}  // namespace

Lines::Lines(Descriptor pipe, int rank, Sink& sink)
    : pipe_(std::move(pipe)), sink_(&sink), prefix_(make_prefix(rank, sink.has_colour())) {}

size_t Lines::read_some() {
  std::array<char, kLongestLine> buffer;
  const ssize_t size = read(pipe_.get(), buffer.data(), buffer.size());
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
  if (size <= 0) {
    close();
    return 0;
  }
  take({buffer.data(), static_cast<size_t>(size)});
  return static_cast<size_t>(size);
}

void Lines::finish() {
  int size = 0;
  if (pipe_.get() < 0 || ioctl(pipe_.get(), FIONREAD, &size) != 0) return;
  for (size_t left = static_cast<size_t>(size); left > 0;) left -= std::min(left, read_some());
  close();
}

void Lines::close() {
  if (!begun_.empty()) pass_on({});
  pipe_.reset();
}

void Lines::take(std::string_view text) {
  while (!text.empty()) {
    const size_t most = kLongestLine - begun_.size();
    const size_t end = text.substr(0, most + 1).find('\n');
    if (end == std::string_view::npos && text.size() <= most) {
      begun_.append(text);
      return;
    }
    pass_on(text.substr(0, std::min(end, most)));
    text.remove_prefix(end == std::string_view::npos ? most : end + 1);
  }
}

void Lines::pass_on(std::string_view line) {
  if (!begun_.empty() || !line.empty()) {
    last_.assign(begun_, 0, kLongestKept);
    last_.append(line.substr(0, kLongestKept - last_.size()));
  }
  sink_->add(prefix_);
  sink_->add(begun_);
  sink_->add(line);
  sink_->add("\n");
  begun_.clear();
}

}  // namespace distag_tool
