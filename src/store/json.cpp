#include "store/json.h"

#include <cstring>

#include "base/plain_numbers.h"
#include "tensor/utf8.h"

namespace distag::store {
namespace {

// Checks tokens, inside and outside of strings.
class Tokens {
 public:
  explicit Tokens(const std::string& file) : file_(file) {}

  void take(char c, size_t at) {
    if (in_text_) return take_in_text(c, at);
    const char kind = c == ' ' || c == '\n' || c == '\r' || c == '\t' ? ' ' : '0';
    const bool is_mark = c == '"' || c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}';
    length_ = is_mark || kind != kind_ ? 1 : length_ + 1;
    kind_ = is_mark ? c : kind;
    if (length_ > kMostToken)
      refuse(file_, fmt::format("its text is no JSON at byte {}: too long a word, or too many blanks", at + 1));
    in_text_ = c == '"';
    begin_ = at;
  }
  void end() const {
    if (in_text_) refuse(file_, fmt::format("its text is no JSON at byte {}: a text without an end", begin_ + 1));
  }

 private:
  void take_in_text(char c, size_t at) {
    const bool is_known = !is_escaped_ || std::strchr("\"\\/bfnrtu", c) != nullptr;
    if (static_cast<unsigned char>(c) < ' ' || !is_known) {
      refuse(file_, fmt::format("its text is no JSON at byte {}", at + 1));
    }
    in_text_ = is_escaped_ || c != '"';
    is_escaped_ = !is_escaped_ && c == '\\';
  }

  static constexpr size_t kMostToken = size_t{64} << 10;
  const std::string& file_;
  bool in_text_ = false;
  bool is_escaped_ = false;
  size_t begin_ = 0;   // of the string
  size_t length_ = 0;  // of a run of like characters outside of strings
  char kind_ = '"';
};

}  // namespace

std::string_view checked_tokens(std::string_view text, const std::string& file) {
  while (!text.empty() && std::strchr(" \n\r\t", text.back()) != nullptr && text.back() != '\0') text.remove_suffix(1);
  if (!is_valid_utf8(text)) refuse(file, "its text is not UTF-8");
  Tokens tokens(file);
  for (size_t i = 0; i < text.size(); ++i) tokens.take(text[i], i);
  tokens.end();
  return text;
}

void check_bytes(std::string_view text, const std::string& file) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") refuse(file, "its text begins with a mark of byte order");
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) refuse(file, fmt::format("its text has a NUL at byte {}", nul + 1));
}

void walk_json(std::string_view text, const std::string& file, Handler& handler) {
  check_bytes(text, file);
  const PlainNumbers numbers;
  nlohmann::json::sax_parse(checked_tokens(text, file), &handler);
}

}  // namespace distag::store
