#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>

namespace distag {

// The place of a call in the trace of a tracer, as the W3C writes it (Trace Context, level 1):
// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": version, trace, span above, flags. distag passes it on and
// makes none.
class TraceParent {
 public:
  static constexpr size_t kSize = 55;

  // nullptr: malformed. A later version may be longer; it is read as the standard says, and becomes version 00, which
  // keeps the flag "sampled" alone. Throws bad_alloc.
  static std::shared_ptr<const TraceParent> parse(std::string_view text);

  explicit TraceParent(std::string_view text) noexcept;  // well-formed, kSize bytes

  const char* c_str() const noexcept { return text_.data(); }
  std::string_view text() const noexcept { return {text_.data(), kSize}; }
  std::string_view trace_id() const noexcept { return text().substr(3, 32); }

 private:
  std::array<char, kSize + 1> text_;
};

}  // namespace distag
