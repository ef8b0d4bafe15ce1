#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "tensor/tensor.h"

namespace distag::ops {

// In checks of arguments of ops, {} formats a tensor or dims; the text is made only if the check fails.
template <typename T, std::string (*kTextOf)(const T&)>
struct TextOf {
  static constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  static auto format(const T& x, fmt::format_context& context) {
    const std::string text = kTextOf(x);
    return std::copy(text.begin(), text.end(), context.out());
  }
};

}  // namespace distag::ops

template <>
struct fmt::formatter<distag::Tensor> : distag::ops::TextOf<distag::Tensor, distag::describe> {};
template <>
struct fmt::formatter<distag::Dims> : distag::ops::TextOf<distag::Dims, distag::to_string> {};

namespace distag::ops {

// Throws INVALID_ARGUMENT with the text unless `holds`.
template <typename... Args>
void require(bool holds, fmt::format_string<Args...> text, Args&&... args) {
  if (!holds) fail(Status::kInvalidArgument, text, std::forward<Args>(args)...);
}

// Throws UNSUPPORTED unless the tensor's dtype is floating.
inline void require_floating(const char* op, const Tensor& x) {
  if (is_floating(x.dtype())) return;
  fail(Status::kUnsupported, "{}: dtype of {} is not supported: cast it first", op, x);
}

}  // namespace distag::ops
