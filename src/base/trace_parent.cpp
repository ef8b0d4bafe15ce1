#include "base/trace_parent.h"

#include <algorithm>
#include <cstring>

namespace distag {
namespace {

constexpr size_t kFlags = 53;  // offset of the flags

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view text) { return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos; }

}  // namespace

std::shared_ptr<const TraceParent> TraceParent::parse(std::string_view text) {
  if (text.size() < kSize || text[2] != '-' || text[35] != '-' || text[52] != '-') return nullptr;
  const std::string_view version = text.substr(0, 2);
  const std::string_view flags = text.substr(kFlags, 2);
  if (!is_hex(version) || version == "ff" || !is_id(text.substr(3, 32)) || !is_id(text.substr(36, 16)) ||
      !is_hex(flags)) {
    return nullptr;
  }
  if (version == "00") return text.size() == kSize ? std::make_shared<const TraceParent>(text) : nullptr;
  if (text.size() > kSize && text[kSize] != '-') return nullptr;
  std::array<char, kSize> known{};
  std::copy_n(text.begin(), kSize, known.begin());
  known[0] = known[1] = known[kFlags] = '0';
  const char last = known[kFlags + 1];
  const int digit = last <= '9' ? last - '0' : last - 'a' + 10;
  known[kFlags + 1] = digit % 2 == 0 ? '0' : '1';
  return std::make_shared<const TraceParent>(std::string_view(known.data(), kSize));
}

TraceParent::TraceParent(std::string_view text) noexcept : text_{} { std::memcpy(text_.data(), text.data(), kSize); }

}  // namespace distag
