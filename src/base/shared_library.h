#pragma once

#include <string>
#include <vector>

namespace distag {

// A third-party library that is loaded only where it is used, so that programs that link distag do not load it as well.
class SharedLibrary {
 public:
  // Loads the first of these names that the system finds. Throws UNSUPPORTED with the reason for each name it does not,
  // bad_alloc where memory is short. Takes as long as the disk does: not on a loop.
  explicit SharedLibrary(const std::vector<std::string>& names);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  // Throws UNSUPPORTED naming the symbol when the library has none of that name.
  template <typename Function>
  void find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(find(symbol));
  }

 private:
  void* find(const char* symbol) const;

  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace distag
