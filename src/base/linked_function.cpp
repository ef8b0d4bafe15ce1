#include "base/linked_function.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <memory>

#include "base/error.h"

namespace distag {
namespace {

struct CloseLibrary {
  void operator()(void* handle) const { dlclose(handle); }
};
using Handle = std::unique_ptr<void, CloseLibrary>;

const link_map* map_of(const void* address) {
  Dl_info info = {};
  link_map* map = nullptr;
  return dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ? nullptr : map;
}

Handle open_loaded(const char* library) {
  Handle handle(dlopen(library, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD));
  if (handle == nullptr) fail(Status::kOutOfMemory, "the dynamic linker does not find {} again", library);
  return handle;
}

// nullptr: the library itself does not define it.
void* find_in(const char* library, const char* name) {
  const Handle handle = open_loaded(library);
  link_map* map = nullptr;
  void* const found = dlsym(handle.get(), name);
  if (found == nullptr || dlinfo(handle.get(), RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  return map_of(found) == map ? found : nullptr;
}

}  // namespace

void* find_linked(const char* name, void* bound) {
  const link_map* const own = map_of(reinterpret_cast<void*>(&find_linked));
  if (own == nullptr || own->l_ld == nullptr) return bound;
  const char* texts = nullptr;
  for (const ElfW(Dyn)* entry = own->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) texts = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  }
  for (const ElfW(Dyn)* entry = own->l_ld; texts != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_NEEDED) continue;
    if (void* const found = find_in(texts + entry->d_un.d_val, name)) return found;
  }
  return bound;
}

const char* file_of(void* function) {
  Dl_info info = {};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

bool lie_together(void* one, void* other) { return map_of(one) != nullptr && map_of(one) == map_of(other); }

bool is_displaced(const char* name, void* function) {
  void* const seen = dlsym(RTLD_DEFAULT, name);
  return seen != nullptr && !lie_together(seen, function);
}

}  // namespace distag
