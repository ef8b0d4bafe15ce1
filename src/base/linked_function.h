#pragma once

#include <atomic>

namespace distag {

// The address of `name` in the first library that defines it, of those that this one was linked with. An ordinary call
// could be bound to what the host exports under that name. `bound` if none of them is a shared library (a host linked
// with archives). Throws OUT_OF_MEMORY. Takes long: once for each name.
void* find_linked(const char* name, void* bound);

// A function of find_linked(), looked up at the first call. Constant-initialised and without a lock, so that a fork
// leaves nothing half done. Any thread.
template <typename Function>
class LinkedFunction {
 public:
  constexpr LinkedFunction(const char* name, Function* bound) : name_(name), bound_(bound) {}

  // Throws OUT_OF_MEMORY the first time.
  Function* get() const {
    Function* found = found_.load(std::memory_order_relaxed);
    if (found != nullptr) return found;
    found = reinterpret_cast<Function*>(find_linked(name_, reinterpret_cast<void*>(bound_)));
    found_.store(found, std::memory_order_relaxed);
    return found;
  }
  void* address() const { return reinterpret_cast<void*>(get()); }
  template <typename... Args>
  auto operator()(Args... args) const {
    return get()(args...);
  }

 private:
  const char* const name_;
  Function* const bound_;
  mutable std::atomic<Function*> found_{nullptr};
};

// The file that holds the function, for messages; "" if it is not known.
const char* file_of(void* function);

// Whether the two lie in the same file.
bool lie_together(void* one, void* other);

// Whether another library, or the program, has displaced `name` of the library that has `function`: calls within that
// library go there as well.
bool is_displaced(const char* name, void* function);

}  // namespace distag
