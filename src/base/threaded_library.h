#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace distag {

// A library of others that starts threads when it is loaded, and ends the process or spins where there is no room for
// them. There it is loaded with the loading thread bound to one processor, for which it starts none.
//
// It has handlers of forks of its own. A constructor of the first priority (101) loads it, so before distag makes its
// handlers, which therefore run before those of the library (base/fork_handlers.cpp).
class ThreadedLibrary {
 public:
  struct Kind {
    const char* file;
    // Of the environment: the first with a positive number sets its threads, that of the caller included. It has at
    // most one for each processor that the loading thread may use, and as many by default.
    std::span<const char* const> thread_variables;
    size_t block_bytes;  // memory for each of its threads, and for each thread that calls it
  };

  constexpr explicit ThreadedLibrary(const Kind& kind) : kind_(kind) {}

  // Both once, while distag itself is loaded and unloaded, and no other thread is in it.
  void load() noexcept;
  void unload() noexcept;

  // nullptr where the library is not there, or has no such symbol.
  void* find(const char* symbol) const noexcept;
  // Why it is not there; empty where it is.
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
