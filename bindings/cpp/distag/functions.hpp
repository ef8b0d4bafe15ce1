// Functions that a worker offers: the parameters of a lambda say what it wants of its call.
//
//   invocation &       the call: its caller, time left, cancellation; defer(). Where no parameter is an argument, any
//                      number of them may come: call.size(), call[0], call.get<T>(0)
//   context            the context of the call, empty where nothing is recorded
//   status &           to fail without an exception
//   T &                a host object: the next argument is the object, or refers to it. value::object makes it, or a
//                      function that returned std::unique_ptr<T> to remote()
//   anything else      the next argument, as values.hpp converts it; a tensor also out of an rref of this worker;
//                      std::optional at the end may be left out
//
// A function returns nothing, a type that becomes a value, a future (the answer follows when that completes), or a
// std::unique_ptr to a host object. An exception fails the call: a distag::error with its code, another one as USER.
#ifndef DISTAG_FUNCTIONS_HPP
#define DISTAG_FUNCTIONS_HPP

#include "rref.hpp"

namespace distag {

class worker;

// The answer that a function still owes. Thread-safe.
class reply : detail::handle<distag_reply, distag_reply_retain, distag_reply_release> {
 public:
  reply() noexcept = default;
  explicit reply(distag_reply* owned) noexcept : handle(owned) {}
  reply(reply&&) noexcept = default;
  reply& operator=(reply&& other) noexcept {
    handle::operator=(std::move(other));
    return *this;
  }

  using handle::operator bool;
  using handle::close;  // unfinished, the call fails with REMOTE
  using handle::get;
  void finish(const value& answer = value(), outcome err = {}) const {
    err.check(distag_reply_finish(get(), answer.get(), nullptr, err.raw()));
  }
  void fail(const status& failure, outcome err = {}) const {
    err.check(distag_reply_finish(get(), nullptr, failure.raw(), err.raw()));
  }
  bool is_cancelled() const noexcept { return distag_reply_is_cancelled(get()) == 1; }
};

// An incoming call: lent to a function while it runs, or taken as an event (then it is finish()ed or fail()ed).
class invocation : public detail::calls<invocation> {
 public:
  invocation() noexcept = default;
  invocation(distag_invocation* raw, bool is_taken) noexcept : raw_(raw), is_taken_(is_taken) {}
  invocation(invocation&& other) noexcept
      : raw_(std::exchange(other.raw_, nullptr)), is_taken_(std::exchange(other.is_taken_, false)) {}
  invocation& operator=(invocation&& other) noexcept {
    std::swap(raw_, other.raw_);
    std::swap(is_taken_, other.is_taken_);
    return *this;
  }
  ~invocation() {
    if (!is_taken_ || raw_ == nullptr) return;
    status dropped;
    dropped.set(errc::remote, "the call was taken and dropped");
    distag_invocation_finish(raw_, nullptr, dropped.raw(), nullptr);
  }

  explicit operator bool() const noexcept { return raw_ != nullptr; }
  distag_invocation* get() const noexcept { return raw_; }
  const char* caller() const noexcept { return distag_invocation_get_caller(raw_); }      // lent
  const char* function() const noexcept { return distag_invocation_get_function(raw_); }  // lent
  // Lent; nullptr: the call carries none.
  const char* traceparent() const noexcept { return distag_invocation_get_traceparent(raw_); }
  distag::worker worker() const noexcept;     // the worker that is called
  distag::context context() const noexcept {  // empty: nothing is recorded
    distag_context* lent = distag_invocation_get_context(raw_);
    if (lent == nullptr) return {};
    distag_context_retain(lent);
    return {lent, worker_handle()};
  }
  nanoseconds time_left() const noexcept { return nanoseconds(distag_invocation_get_time_left(raw_)); }
  bool is_cancelled() const noexcept { return distag_invocation_is_cancelled(raw_) == 1; }
  std::size_t size() const noexcept { return distag_invocation_get_arg_count(raw_); }
  value operator[](std::size_t index) const noexcept { return value::retained(distag_invocation_get_arg(raw_, index)); }
  // An argument as a T; the value behind an rref of this worker, unless T is an rref or a value.
  template <class T>
  T get(std::size_t index, outcome err = {}) const;
  template <class T>
  T* object(std::size_t index, outcome err = {}) const {
    void* found = nullptr;
    err.check(distag_invocation_get_object(raw_, index, detail::type_name<T>().c_str(), &found, err.raw()));
    return static_cast<T*>(found);
  }

  // Sets the answer, which goes out when the function returns.
  void answer(const value& given, outcome err = {}) const {
    err.check(distag_invocation_return(raw_, given.get(), err.raw()));
  }
  // Keeps the call open after the function has returned.
  reply defer(outcome err = {}) const {
    distag_reply* made = nullptr;
    err.check(distag_invocation_defer(raw_, &made, err.raw()));
    return reply(made);
  }
  // These answer a call that was taken.
  void finish(const value& answer = value(), outcome err = {}) { end(answer.get(), nullptr, err); }
  void fail(const status& failure, outcome err = {}) { end(nullptr, failure.raw(), err); }

  detail::caller as_caller() const noexcept {
    return {distag_invocation_get_worker(raw_), distag_invocation_get_context(raw_), raw_};
  }

 private:
  detail::worker_handle worker_handle() const noexcept;
  void end(distag_value* answer, const distag_error* failure, outcome& err) {
    if (err.check(distag_invocation_finish(raw_, answer, failure, err.raw()))) raw_ = nullptr;
  }

  distag_invocation* raw_ = nullptr;
  bool is_taken_ = false;
};

namespace detail {

// The meaning of a parameter of a function.
template <class P>
struct parameter {
  using type = std::decay_t<P>;
  static constexpr bool is_invocation = std::is_same<type, invocation>::value;
  static constexpr bool is_context = std::is_same<type, context>::value;
  static constexpr bool is_status = std::is_same<type, status>::value;
  static constexpr bool is_object = std::is_lvalue_reference<P>::value &&
                                    !std::is_const<std::remove_reference_t<P>>::value && !is_invocation && !is_status &&
                                    !is_context;
  static constexpr std::size_t arguments = is_invocation || is_context || is_status ? 0 : 1;
  static_assert(!is_object || !is_convertible<type>::value,
                "take values by value or by a reference to const: a T & is a host object");
  using kept = std::conditional_t<is_object || is_invocation || is_status, type*, type>;
};

template <class T>
struct is_optional_type : std::false_type {};
template <class T>
struct is_optional_type<std::optional<T>> : std::true_type {};
template <class T>
struct is_future_type : std::false_type {};
template <class T>
struct is_future_type<future<T>> : std::true_type {};
template <class T>
struct is_object_pointer : std::false_type {};
template <class T>
struct is_object_pointer<std::unique_ptr<T>> : std::true_type {};

// The parameters of a callable.
template <class F, class = void>
struct signature : signature<decltype(&F::operator())> {};
template <class R, class... P>
struct signature<R (*)(P...)> {
  using result = R;
  template <template <class...> class Target>
  using apply = Target<P...>;
};
template <class R, class... P>
struct signature<R (*)(P...) noexcept> : signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct signature<R (C::*)(P...)> : signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct signature<R (C::*)(P...) const> : signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct signature<R (C::*)(P...) noexcept> : signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct signature<R (C::*)(P...) const noexcept> : signature<R (*)(P...)> {};

template <class R>
void answer_with(const invocation& call, R&& result, outcome& err) {
  using type = std::decay_t<R>;
  if constexpr (is_object_pointer<type>::value) {
    call.answer(value::object(std::move(result), err), err);
  } else if constexpr (is_future_type<type>::value) {
    auto owed = std::make_shared<reply>(call.defer(err));
    if (err.failed()) return;
    result.on_done(
        [owed](const type& done) {
          status failure;
          distag_value* found = nullptr;
          distag_future_get_value(done.get_handle(), &found, failure.raw());
          status ignored;
          if (failure) {
            owed->fail(failure, ignored);
          } else {
            owed->finish(value::retained(found), ignored);
          }
        },
        err);
  } else {
    if constexpr (is_lent<type>::value) {
      err.check(distag_invocation_return(call.get(), convert<type>::lend(result), err.raw()));
    } else {
      call.answer(value(result, err), err);
    }
  }
}

// Calls `function` with the arguments of one invocation.
template <class F, class R, class... P>
class binding {
 public:
  static void run(F& function, invocation& call, outcome& err) {
    run(function, call, err, std::index_sequence_for<P...>());
  }

 private:
  static constexpr std::size_t count_before(std::size_t end) {
    const std::size_t counts[] = {parameter<P>::arguments..., 0};
    std::size_t sum = 0;
    for (std::size_t i = 0; i < end; ++i) sum += counts[i];
    return sum;
  }
  static constexpr std::size_t required() {
    const bool optional[] = {is_optional_type<std::decay_t<P>>::value..., false};
    const std::size_t counts[] = {parameter<P>::arguments..., 0};
    std::size_t last = 0, sum = 0;
    for (std::size_t i = 0; i < sizeof...(P); ++i) {
      sum += counts[i];
      if (counts[i] != 0 && !optional[i]) last = sum;
    }
    return last;
  }

  template <std::size_t... I>
  static void run(F& function, invocation& call, outcome& err, std::index_sequence<I...>) {
    constexpr std::size_t most = count_before(sizeof...(P));
    constexpr bool reads_them_itself = most == 0 && (... || parameter<P>::is_invocation);
    if (!reads_them_itself && (call.size() > most || call.size() < required())) {
      constexpr std::size_t least = required();
      const std::string wanted = (least == most ? "" : std::to_string(least) + " to ") + std::to_string(most);
      err.fail(errc::invalid_argument, std::string(call.function()) + " takes " + wanted +
                                           (most == 1 ? " argument, " : " arguments, ") + std::to_string(call.size()) +
                                           " came");
      return;
    }
    status own;
    std::tuple<typename parameter<P>::kept...> kept{read_one<P>(call, count_before(I), own, err)...};
    if (err.failed()) return;
    if constexpr (std::is_void<R>::value) {
      function(pass<P>(std::get<I>(kept))...);
      if (own) copy_error(err.raw(), *own.raw());
    } else {
      auto&& result = function(pass<P>(std::get<I>(kept))...);
      if (own) return copy_error(err.raw(), *own.raw());
      answer_with(call, std::move(result), err);
    }
  }

  template <class Q>
  static typename parameter<Q>::kept read_one(invocation& call, std::size_t index, status& own, outcome& err) {
    (void)index;
    (void)own;
    if constexpr (parameter<Q>::is_invocation) {
      return &call;
    } else if constexpr (parameter<Q>::is_status) {
      return &own;
    } else if constexpr (parameter<Q>::is_context) {
      return call.context();
    } else if constexpr (parameter<Q>::is_object) {
      return err.failed() ? nullptr : call.object<typename parameter<Q>::type>(index, err);
    } else {
      return err.failed() ? typename parameter<Q>::type() : call.get<typename parameter<Q>::type>(index, err);
    }
  }
  template <class Q>
  static decltype(auto) pass(typename parameter<Q>::kept& kept) {
    if constexpr (std::is_pointer<typename parameter<Q>::kept>::value && std::is_lvalue_reference<Q>::value) {
      return static_cast<Q>(*kept);
    } else if constexpr (std::is_lvalue_reference<Q>::value) {
      return static_cast<Q>(kept);
    } else {
      return static_cast<Q&&>(kept);
    }
  }
};

// The function of C for a callable of C++, which is its user_data.
template <class F>
struct function_of {
  template <class... P>
  using bound = binding<F, typename signature<F>::result, P...>;

  static distag_status call(void* user_data, distag_invocation* raw, distag_error* err) {
    return guarded(err, [user_data, raw, err] {
      invocation lent(raw, false);
      outcome out(err);
      signature<F>::template apply<bound>::run(*static_cast<F*>(user_data), lent, out);
    });
  }
};

}  // namespace detail

inline detail::worker_handle invocation::worker_handle() const noexcept {
  return detail::worker_handle::retained(distag_invocation_get_worker(raw_));
}

template <class T>
T invocation::get(std::size_t index, outcome err) const {
  if constexpr (std::is_same<T, tensor>::value) {
    distag_tensor* found = nullptr;
    err.check(distag_invocation_get_tensor(raw_, index, &found, err.raw()));
    return tensor::retained(found);
  } else {
    if (raw_ == nullptr) return err.fail(errc::invalid_argument, "invocation::get: the invocation is empty"), T();
    if (index >= size()) {
      if constexpr (!detail::is_optional_type<T>::value) {
        err.fail(errc::invalid_argument, std::string(function()) + ": args" + detail::step_of(index) +
                                             " is missing: " + std::to_string(size()) + " came");
      }
      return T();
    }
    distag_value* found = distag_invocation_get_arg(raw_, index);
    distag_rref* reference = nullptr;
    if (!std::is_same<T, rref>::value && !std::is_same<T, value>::value &&
        distag_value_get_kind(found) == DISTAG_VALUE_RREF) {
      if (err.check(distag_value_get_rref(found, &reference, err.raw()))) {
        err.check(distag_rref_get_local(reference, &found, err.raw()));
      }
    }
    outcome quiet(err.raw());
    conversion way(quiet);
    T content = quiet.failed() ? T() : convert<T>::from(found, way);
    if (!quiet.failed()) return content;
    way.within(std::string(function()) + ": args" + detail::step_of(index));
    way.finish();
    err.check(err.raw()->code);
    return T();
  }
}

}  // namespace distag

#endif
