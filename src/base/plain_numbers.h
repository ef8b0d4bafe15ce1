#pragma once

#include <locale.h>

namespace distag {

// While it lives the calling thread writes and reads numbers with a point, as JSON does, whatever locale the host has
// chosen (setlocale): nlohmann's lexer asks that locale, hands numbers on in its notation, and ends the process where a
// point has two bytes. Nests. The process and its other threads keep their locale.
class PlainNumbers {
 public:
  // The locale "C" is there always: no memory is taken for it.
  PlainNumbers() noexcept : plain_(newlocale(LC_ALL_MASK, "C", nullptr)), before_(uselocale(plain_)) {}
  ~PlainNumbers() {
    uselocale(before_);
    if (plain_ != nullptr) freelocale(plain_);
  }
  PlainNumbers(const PlainNumbers&) = delete;
  PlainNumbers& operator=(const PlainNumbers&) = delete;

 private:
  const locale_t plain_;
  const locale_t before_;
};

}  // namespace distag
