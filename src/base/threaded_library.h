#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace distag {

// Whether this process could have this number of further threads at once, with the default stack, and `bytes` beside
// them: tries it. The trial's threads are gone when it returns true. Any thread.
bool has_room_for_threads(size_t threads, size_t bytes) noexcept;

// A third-party library that starts threads when it is loaded, and ends the process or spins where there is no room for
// them. Without that room the loading thread is bound to one processor while it loads, and the library starts no
// thread.
//
// The library has fork handlers of its own. A constructor of the first priority (101) loads it before distag makes its
// handlers, so that those of distag run first at a fork (base/fork_handlers.cpp).
class ThreadedLibrary {
 public:
  struct Kind {
    const char* file;
    // Names in the environment: the first with a positive number sets how many threads the library has, the caller's
    // included. By default, and at most, it has one for each processor that the loading thread may use.
    std::span<const char* const> thread_variables;
    size_t block_bytes;  // memory for each of its threads, and for each thread that calls it
  };

  constexpr explicit ThreadedLibrary(const Kind& kind) : kind_(kind) {}

  // Each is called once, while distag itself is loaded or unloaded and no other thread runs in it.
  void load() noexcept;
  void unload() noexcept;

  // Returns nullptr where the library is missing or has no such symbol.
  void* find(const char* symbol) const noexcept;
  // Says why the library is missing; empty where it is loaded.
  const char* lack() const noexcept { return lack_.data(); }
  // Whether the address space is too small for a block for each thread that may call it (`ulimit -v`).
  bool is_space_short() const noexcept { return is_space_short_; }
  // Whether there is room now for one more block, and for its threads, the caller included, to be made anew.
  bool has_block() const noexcept;
  bool has_threads(size_t count) const noexcept;

 private:
  void open() noexcept;

  const Kind kind_;
  void* handle_ = nullptr;
  std::array<char, 256> lack_ = {};
  bool is_space_short_ = false;
};

}  // namespace distag
