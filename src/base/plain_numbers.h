#pragma once

#include <locale.h>

namespace distag {

// While this lives, the calling thread writes and reads numbers with a point, as JSON does, whatever locale the host
// has set (setlocale): nlohmann's lexer asks that locale, hands numbers on in its notation, and ends the process if its
// point has two bytes. Nests. The process and its other threads keep their locale.
class PlainNumbers {
 public:
  // The locale "C" always exists: it takes no memory.
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
