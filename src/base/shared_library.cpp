#include "base/shared_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace distag {

SharedLibrary::SharedLibrary(const std::vector<std::string>& names) {
  std::string reasons;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    name_ = name;
    if (handle_ != nullptr) return;
    const char* const reason = dlerror();
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", reason == nullptr ? name.c_str() : reason);
  }
  fail(Status::kUnsupported, "{}", reasons);
}

SharedLibrary::~SharedLibrary() { dlclose(handle_); }

void* SharedLibrary::find(const char* symbol) const {
  void* const found = dlsym(handle_, symbol);
  if (found == nullptr) fail(Status::kUnsupported, "{} has no {}: it is too old", name_, symbol);
  return found;
}

}  // namespace distag
