#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace distag::layout {

// Reads a text from left to right; blanks between words are skipped. Errors name the text and the position.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  size_t place() const { return next_; }  // position of the next character, from 0
  bool at_end();
  bool sees(char c);
  // Consumes the given characters if they come next; returns whether they did.
  bool take(char c);
  bool take(std::string_view text);
  // The same for a whole word.
  bool take_word(std::string_view word);
  // Throw INVALID_ARGUMENT if the text has anything else there.
  void expect(char c, const char* purpose);
  void expect_end();
  // Letters, digits and _; empty if there are none.
  std::string_view word();
  // Consumes the text up to and including `end`, and returns it without `end`. Throws INVALID_ARGUMENT if `end` is
  // missing.
  std::string_view until(char end);
  int64_t number(const char* purpose);
  // Numbers separated by commas, between the brackets `open` and `close`.
  std::vector<int64_t> numbers(char open, char close, const char* purpose);

  template <typename... Args>
  [[noreturn]] void refuse(Status status, size_t place, fmt::format_string<Args...> text, Args&&... args) const {
    refuse_text(status, place, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  void skip_blanks();
  [[noreturn]] void refuse_text(Status status, size_t place, const std::string& reason) const;

  const std::string_view text_;
  size_t next_ = 0;
};

}  // namespace distag::layout
