// fmt::format within this library, so that its texts are allocated as all else is.
#include <fmt/format-inl.h>
