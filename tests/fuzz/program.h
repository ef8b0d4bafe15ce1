#pragma once

#include <string>

#include "fuzz/handles.h"

namespace distag::fuzz {

inline constexpr size_t kMostElements = 256;  // of a tensor that is kept

class Program;

// The user data of a callback; each ends in one destroy.
struct Host {
  Program* program;
  uint8_t kinds;
};
void destroy_host(void* host);

// A program of calls of the C interface: each byte of the input chooses a call or an argument. Handles may be NULL or
// of a wrong type, sizes absurd, and callbacks go on with the program.
class Program {
 public:
  Program(const uint8_t* data, size_t size) : in_(data, size) {}
  virtual ~Program() = default;

  void run();
  // The answer of a callback to which a tensor was lent, after a step of the program.
  distag_status call_back(const Host& host, distag_tensor* lent, distag_tensor** out, distag_error* err);

 protected:
  virtual void step() = 0;

  template <typename T>
  T* pick() {
    return handles_.pick<T>(in_);
  }
  template <typename T>
  std::vector<T*> picks(size_t most) {
    std::vector<T*> items(in_.below(most + 1));
    for (T*& item : items) item = pick<T>();
    return items;
  }
  const char* text();
  distag_dtype dtype();
  std::vector<int64_t> dims();
  Host* make_host();
  // A call that makes a handle: it is there when the call succeeds, else NULL.
  template <typename T, typename Body>
  void make(Body&& body) {
    T* out = reinterpret_cast<T*>(this);
    const distag_status status = call([&](distag_error* err) { return body(&out, err); });
    check((status == DISTAG_OK) == (out != nullptr));
    if (out != nullptr) keep(out);
  }
  template <typename T>
  void keep(T* handle) {
    handles_.keep(handle, true);
  }
  void keep(distag_tensor* tensor, bool is_own = true);
  // Another owner of what is lent.
  void keep_lent(distag_tensor* tensor);
  void keep_lent(distag_value* value);

  // Steps that every program has.
  void make_tensor();
  void make_number_or_text();
  void make_list_or_map();
  void make_context();
  void apply();
  void change_tensor();
  void run_pass();
  void drop();

  Input in_;
  Handles handles_;

 private:
  void go_on();

  size_t steps_ = 0;
};

// No handle is left, and each destroy function has run once.
void check_nothing_left();

// Runs a program of that type.
template <typename T>
void run_program(const uint8_t* data, size_t size) {
  T(data, size).run();
  check_nothing_left();
}

}  // namespace distag::fuzz
