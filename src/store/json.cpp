#include "store/json.h"

#include <cstring>
#include <vector>

#include "tensor/utf8.h"

namespace distag::store {
namespace {

using nlohmann::json;

// Builds a value in linear time: nlohmann's parser with a callback visits all items of a parent whenever one ends.
class Builder final : public nlohmann::json_sax<json> {
 public:
  explicit Builder(const std::string& file) : file_(file) {}
  json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { refuse(file_, "its text is no JSON"); }
  bool start_object(size_t) override { return begin(json::object()); }
  bool start_array(size_t) override { return begin(json::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    const auto [entry, is_new] = open_.back()->get_ref<json::object_t&>().try_emplace(name);
    if (!is_new) refuse(file_, fmt::format("the key \"{}\" is there twice", name.substr(0, 80)));
    named_ = &entry->second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    refuse(file_, fmt::format("its text is no JSON at byte {}", position));
  }

 private:
  // Only the innermost open value grows, so pointers to the open ones stay valid.
  json& place(json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (!open_.back()->is_array()) return *named_ = std::move(value);
    open_.back()->push_back(std::move(value));
    return open_.back()->back();
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool begin(json value) {
    if (open_.size() >= kMostDepth) refuse(file_, "it is nested deeper than 40");
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool end() {
    open_.pop_back();
    return true;
  }

  const std::string& file_;
  json root_;
  std::vector<json*> open_;
  json* named_ = nullptr;  // the value of the last key
};

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

json parse_json(std::string_view text, const std::string& file) {
  Builder builder(file);
  walk_json(text, file, builder);
  return builder.take();
}

}  // namespace distag::store
