#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace distag::layout {

// Reads a text from left to right; blanks between words do not count. Failures name the text and the place.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  size_t place() const { return next_; }  // of the next character, from 0
  bool at_end();
  bool sees(char c);
  // Whether the next characters are those; if so it is behind them.
  bool take(char c);
  bool take(std::string_view text);
  // The same for a word that ends there.
  bool take_word(std::string_view word);
  // Throw INVALID_ARGUMENT when something else is there.
  void expect(char c, const char* purpose);
  void expect_end();
  // Letters, digits and _; empty when there are none.
  std::string_view word();
  // All up to that character, behind which it then is. Throws INVALID_ARGUMENT when it does not come.
  std::string_view until(char end);
  int64_t number(const char* purpose);
  // Between brackets that `open` begins and `close` ends: numbers with commas between them.
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
