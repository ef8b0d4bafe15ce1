// fmt within this library: its texts are allocated like all else, and none of its names are taken from the host.
#include <fmt/format-inl.h>

template auto fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref) -> fmt::detail::thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref) -> char;
