#include "layout/scanner.h"

namespace distag::layout {
namespace {

constexpr size_t kMostShown = 80;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }

// Replaces all but printable ASCII by '?', as the text may be anything.
std::string shown(std::string_view text) {
  std::string result(text.substr(0, kMostShown));
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > kMostShown ? result + "..." : result;
}

}  // namespace

void Scanner::skip_blanks() {
  while (next_ < text_.size() && is_blank(text_[next_])) ++next_;
}

bool Scanner::at_end() {
  skip_blanks();
  return next_ == text_.size();
}

bool Scanner::sees(char c) {
  skip_blanks();
  return next_ < text_.size() && text_[next_] == c;
}

bool Scanner::take(char c) {
  if (!sees(c)) return false;
  ++next_;
  return true;
}

bool Scanner::take(std::string_view text) {
  skip_blanks();
  if (text_.substr(next_, text.size()) != text) return false;
  next_ += text.size();
  return true;
}

bool Scanner::take_word(std::string_view word) {
  skip_blanks();
  const size_t end = next_ + word.size();
  if (end < text_.size() && is_word(text_[end])) return false;
  return take(word);
}

void Scanner::expect(char c, const char* purpose) {
  if (!take(c)) refuse(Status::kInvalidArgument, next_, "'{}' is missing {}", c, purpose);
}

void Scanner::expect_end() {
  if (!at_end()) refuse(Status::kInvalidArgument, next_, "there is text behind the end: remove it");
}

std::string_view Scanner::word() {
  skip_blanks();
  const size_t first = next_;
  while (next_ < text_.size() && is_word(text_[next_])) ++next_;
  return text_.substr(first, next_ - first);
}

std::string_view Scanner::until(char end) {
  const size_t first = next_;
  while (next_ < text_.size() && text_[next_] != end) ++next_;
  if (next_ == text_.size()) refuse(Status::kInvalidArgument, first, "'{}' is missing behind this", end);
  return text_.substr(first, next_++ - first);
}

int64_t Scanner::number(const char* purpose) {
  skip_blanks();
  const size_t first = next_;
  const bool is_negative = take('-');
  int64_t value = 0;
  const size_t digits = next_;
  for (; next_ < text_.size() && is_digit(text_[next_]); ++next_) {
    if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
        __builtin_add_overflow(value, int64_t{text_[next_] - '0'}, &value)) {
      refuse(Status::kInvalidArgument, first, "the number {} is too large", purpose);
    }
  }
  if (digits == next_) refuse(Status::kInvalidArgument, first, "a number is missing {}", purpose);
  return is_negative ? -value : value;
}

std::vector<int64_t> Scanner::numbers(char open, char close, const char* purpose) {
  expect(open, purpose);
  std::vector<int64_t> items;
  while (!take(close)) {
    if (!items.empty()) expect(',', purpose);
    items.push_back(number(purpose));
  }
  return items;
}

void Scanner::refuse_text(Status status, size_t place, const std::string& reason) const {
  fail(status, "spec \"{}\", at {}: {}", shown(text_), place, reason);
}

}  // namespace distag::layout
