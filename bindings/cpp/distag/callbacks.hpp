// Code of the host below a call of C: its exceptions become a status.
#ifndef DISTAG_CALLBACKS_HPP
#define DISTAG_CALLBACKS_HPP

#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "status.hpp"

namespace distag {
namespace detail {

inline void copy_error(distag_error* to, const distag_error& from) noexcept {
  if (to == nullptr) return;
  distag_error_set(to, from.code, from.message);
  to->origin_rank = from.origin_rank;
  to->flags = from.flags;
}

#ifndef DISTAG_HPP_NO_EXCEPTIONS
// "std::out_of_range: no such user"
inline std::string describe(const std::exception& failure) {
  const char* what = failure.what();
  if (what == nullptr) what = "(no text)";
#if defined(__GXX_RTTI) || defined(__cpp_rtti)
  int code = 0;
  char* name = abi::__cxa_demangle(typeid(failure).name(), nullptr, nullptr, &code);
  std::string text = code == 0 ? name : "exception";
  std::free(name);
  return text + ": " + what;
#else
  return std::string("exception: ") + what;
#endif
}
#endif

// Runs code of the host; its failure goes to `err`, which C gave. An exit of the thread (pthread_exit) goes through.
// The destructor of a thrown object is code of the host too, and may throw as the handler ends.
template <class Body>
distag_status guarded(distag_error* err, Body&& body) {
#ifdef DISTAG_HPP_NO_EXCEPTIONS
  body();
  return err->code;
#else
  try {
    try {
      body();
      return err->code;
    } catch (const error& failure) {
      copy_error(err, *failure.status().raw());
      if (err->code == DISTAG_OK)
        distag_error_set(err, DISTAG_E_USER, failure.what());  // thrown with the code of success
    } catch (const std::exception& failure) {
      distag_error_set(err, DISTAG_E_USER, describe(failure).c_str());
    } catch (abi::__forced_unwind&) {
      throw;
    } catch (...) {
      distag_error_set(err, DISTAG_E_USER, "an exception that is no std::exception");
    }
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    if (err->code == DISTAG_OK) distag_error_set(err, DISTAG_E_USER, "an exception that cannot be shown");
    new (std::nothrow) std::exception_ptr(std::current_exception());  // never ended: its destructor may throw again
  }
  return err->code;
#endif
}

// The same where no caller takes a failure.
template <class Body>
void guarded_alone(Body&& body) {
  distag_error ignored = DISTAG_ERROR_INIT;
  guarded(&ignored, std::forward<Body>(body));
}

// Host memory or a host object, to be deleted by the library.
template <class T>
void delete_as(void* object) {
  if constexpr (std::is_nothrow_destructible<T>::value) {
    delete static_cast<T*>(object);
  } else {
    guarded_alone([object] { delete static_cast<T*>(object); });
  }
}

// Calls a function that may take a `status &` as its last argument, to fail without an exception.
template <class F, class... Given>
decltype(auto) call_fallible(distag_error* err, F&& function, Given&&... given) {
  if constexpr (std::is_invocable<F, Given..., status&>::value) {
    struct keeper {  // after the call, also where the result is not movable
      distag_error* err;
      status seen{};
      ~keeper() {
        if (seen) copy_error(err, *seen.raw());
      }
    } kept{err};
    return function(std::forward<Given>(given)..., kept.seen);
  } else {
    return function(std::forward<Given>(given)...);
  }
}

template <class F, class... Given>
constexpr bool is_fallible_call =
    std::is_invocable<F, Given...>::value || std::is_invocable<F, Given..., status&>::value;

}  // namespace detail
}  // namespace distag

#endif
