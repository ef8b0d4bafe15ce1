// Futures: each completes exactly once.
#ifndef DISTAG_FUTURES_HPP
#define DISTAG_FUTURES_HPP

#if defined(__cpp_impl_coroutine) && __has_include(<coroutine>)
#include <coroutine>
#define DISTAG_HPP_COROUTINES
#elif __cplusplus >= 202002L && __has_include(<coroutine>)
#include <coroutine>
#ifdef __cpp_lib_coroutine
#define DISTAG_HPP_COROUTINES
#endif
#endif

#include "callbacks.hpp"
#include "values.hpp"

namespace distag {

class worker;
template <class T>
class future;

namespace detail {

template <class F, class T, class = void>
struct takes_value : std::bool_constant<is_fallible_call<F&, T>> {};
template <class F>
struct takes_value<F, void> : std::bool_constant<is_fallible_call<F&>> {};

// The result of a continuation.
template <class F, class... Given>
using fallible_result = decltype(call_fallible(nullptr, std::declval<F&>(), std::declval<Given>()...));

template <class F, class T, bool TakesValue = takes_value<F, T>::value>
struct continuation_result {
  using type = fallible_result<F, const future<T>&>;
};
template <class F, class T>
struct continuation_result<F, T, true> {
  using type = fallible_result<F, T>;
};
template <class F>
struct continuation_result<F, void, true> {
  using type = fallible_result<F>;
};

}  // namespace detail

// The later value of a call, a start or a step. Thread-safe. Its last copy does not cancel the operation.
template <class T = value>
class future : public detail::handle<distag_future, distag_future_retain, distag_future_release> {
 public:
  using value_type = T;

  future() noexcept = default;
  explicit future(distag_future* owned) noexcept : handle(owned) {}
  static future retained(distag_future* lent) noexcept { return future(handle::retained(lent).release()); }

  bool is_ready() const noexcept { return distag_future_poll(get_handle()) == 1; }
  void cancel() const noexcept { distag_future_cancel(get_handle()); }
  // Waits until it is complete, and fails as the operation did. Blocks.
  void wait(nanoseconds timeout = forever, outcome err = {}) const {
    err.check(distag_future_wait(get_handle(), timeout.count(), err.raw()));
  }
  // Waits, and returns the value. Blocks.
  T get(nanoseconds timeout = forever, outcome err = {}) const {
    distag_value* found = nullptr;
    if (err.check(distag_future_wait(get_handle(), timeout.count(), err.raw()))) {
      err.check(distag_future_get_value(get_handle(), &found, err.raw()));
    }
    return detail::read<T>(found, err);
  }
  T get(status& err) const { return get(forever, outcome(err)); }
  void wait(status& err) const { wait(forever, outcome(err)); }

  // A future of function(value), which a failure skips, or of function(this future), whichever `function` takes.
  template <class F>
  auto then(F function, outcome err = {}) const {
    using result = typename detail::continuation_result<F, T>::type;
    distag_future* next = nullptr;
    err.check(distag_future_then(get_handle(), &future::continue_with<F, result>, new F(std::move(function)),
                                 detail::delete_as<F>, &next, err.raw()));
    return future<std::decay_t<result>>(next);
  }
  // Calls function(future) once it is complete, never from inside this call.
  template <class F>
  void on_done(F function, outcome err = {}) const {
    err.check(distag_future_on_done(get_handle(), &future::call_back<F>, new F(std::move(function)),
                                    detail::delete_as<F>, err.raw()));
  }
  // Posts an event to a worker with the host executor once it is complete.
  void post(const worker& to, std::uint64_t tag, outcome err = {}) const;

  distag_future* get_handle() const noexcept { return handle::get(); }

#ifdef DISTAG_HPP_COROUTINES
  // co_await: goes on where callbacks run, on the pool of the worker or in its poll().
  bool await_ready() const noexcept { return is_ready(); }
  bool await_suspend(std::coroutine_handle<> waiting) const {
    const future kept = *this;  // the coroutine may destroy this one before the call below returns
    return distag_future_on_done(kept.get_handle(), &future::resume, waiting.address(), nullptr, nullptr) == DISTAG_OK;
  }
  T await_resume() const { return get(); }
#endif

 private:
  template <class F, class Result>
  static distag_status continue_with(void* user_data, distag_future* done, distag_value** out_value,
                                     distag_error* err) {
    return detail::guarded(err, [user_data, done, out_value, err] {
      F& function = *static_cast<F*>(user_data);
      outcome out(err);
      if constexpr (!detail::takes_value<F, T>::value) {
        give<Result>(out_value, err, function, retained(done));
      } else {
        distag_value* found = nullptr;
        if (!out.check(distag_future_get_value(done, &found, err))) return;
        if constexpr (std::is_void<T>::value) {
          give<Result>(out_value, err, function);
        } else {
          T given = detail::read<T>(found, out);
          if (!out.failed()) give<Result>(out_value, err, function, std::move(given));
        }
      }
    });
  }
  template <class Result, class F, class... Given>
  static void give(distag_value** out_value, distag_error* err, F& function, Given&&... given) {
    if constexpr (std::is_void<Result>::value) {
      detail::call_fallible(err, function, std::forward<Given>(given)...);
    } else {
      const auto result = detail::call_fallible(err, function, std::forward<Given>(given)...);
      outcome out(err);
      if (out.failed()) return;
      conversion way(out);
      *out_value = convert<std::decay_t<Result>>::to(result, way);
      way.finish();
    }
  }
  template <class F>
  static void call_back(void* user_data, distag_future* done) {
    detail::guarded_alone([user_data, done] { (*static_cast<F*>(user_data))(retained(done)); });
  }
#ifdef DISTAG_HPP_COROUTINES
  static void resume(void* waiting, distag_future*) {
    detail::guarded_alone([waiting] { std::coroutine_handle<>::from_address(waiting).resume(); });
  }
#endif
};

// Waits until all have a value, or fails as the first one that fails. Blocks.
template <class T>
void wait_all(const std::vector<future<T>>& futures, nanoseconds timeout = forever, outcome err = {}) {
  static_assert(sizeof(future<T>) == sizeof(distag_future*), "an array of futures is an array of handles");
  err.check(distag_wait_all(reinterpret_cast<distag_future* const*>(futures.data()), futures.size(), timeout.count(),
                            err.raw()));
}
template <class T>
void wait_all(const std::vector<future<T>>& futures, status& err) {
  wait_all(futures, forever, outcome(err));
}

}  // namespace distag

#endif
