#include "base/shared_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <new>

#include "base/error.h"

namespace distag {

namespace {

// The loader reports this in words alone, and uses these words for nothing else.
bool is_about_memory(const std::string& reasons) {
  const char* const words[] = {"out of memory", "cannot allocate", "cannot create"};
  return std::any_of(std::begin(words), std::end(words),
                     [&reasons](const char* each) { return reasons.find(each) != std::string::npos; });
}

}  // namespace

SharedLibrary::SharedLibrary(const std::vector<std::string>& names) {
  std::string reasons;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    name_ = name;
    if (handle_ != nullptr) return;
    const char* const reason = dlerror();
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", reason == nullptr ? name.c_str() : reason);
  }
  if (is_about_memory(reasons)) throw std::bad_alloc();
  fail(Status::kUnsupported, "{}", reasons);
}

SharedLibrary::~SharedLibrary() { dlclose(handle_); }

void* SharedLibrary::find(const char* symbol) const {
  void* const found = dlsym(handle_, symbol);
  if (found == nullptr) fail(Status::kUnsupported, "{} has no {}: it is too old", name_, symbol);
  return found;
}

}  // namespace distag
