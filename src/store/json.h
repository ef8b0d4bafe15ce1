#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace distag::store {

inline constexpr size_t kMostDepth = 40;

[[noreturn]] inline void refuse(const std::string& file, const std::string& reason) {
  fail(Status::kProtocol, "\"{}\" is damaged, or no checkpoint: {}", file, reason);
}

// Handlers of walk_json() take the values that they expect; all others come to other().
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Handler(const std::string& file) : file_(file) {}
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    refuse(file_, fmt::format("its text is no JSON at byte {}", position));
  }

 protected:
  virtual bool other() = 0;
  const std::string& file() const { return file_; }
  void check_depth(size_t depth) {
    if (depth > kMostDepth) refuse(file_, "it is nested deeper than 40");
  }

 private:
  const std::string& file_;
};

// Throws PROTOCOL for bytes that nlohmann's parser would ignore: a byte order mark, and all bytes from a NUL on.
void check_bytes(std::string_view text, const std::string& file);

// The text without blanks at its end. Throws PROTOCOL for tokens that no writer makes, and that nlohmann's parser would
// copy several times: 64 KiB of blanks or of a number, a string without an end, or one with forbidden bytes.
std::string_view checked_tokens(std::string_view text, const std::string& file);

// Passes once over a hostile text, and ends when the handler throws. Throws PROTOCOL naming the file if it is no JSON.
void walk_json(std::string_view text, const std::string& file, Handler& handler);

}  // namespace distag::store
