// Contexts: calls that are recorded, backward passes, gradients.
#ifndef DISTAG_CONTEXT_HPP
#define DISTAG_CONTEXT_HPP

#include "futures.hpp"

namespace distag {

class invocation;
class rref;
class worker;

struct call_options {
  nanoseconds timeout{0};       // 0: the worker's own; forever: none
  const char* label = nullptr;  // shows in errors and reports
  // From the host's tracer; nullptr: that of the call being answered, "": none.
  const char* traceparent = nullptr;
};

namespace detail {

using worker_handle = handle<distag_worker, distag_worker_retain, distag_worker_release>;

struct raw_call_options : distag_call_options {
  raw_call_options(const call_options& given, distag_invocation* outer = nullptr) noexcept
      : distag_call_options(DISTAG_CALL_OPTIONS_INIT) {
    this->timeout_ns = given.timeout.count();
    this->label = given.label;
    this->traceparent = given.traceparent;
    this->within = outer;
  }
};

// The origin of calls: calls of worker, context and invocation have this in common.
struct caller {
  distag_worker* worker;
  distag_context* context;
  distag_invocation* within;

  template <class T>
  T call(text to, text function, const arguments& given, const call_options& options, outcome& err) const {
    value answer;
    const arguments::array args(given, err);
    if (!args.ok() || !has_worker(function, err)) return T();
    const raw_call_options raw(options, within);
    err.check(distag_call(worker, context, to.c_str(), function.c_str(), args.data(), args.size(), &raw, answer.put(),
                          err.raw()));
    return read<T>(answer.get(), err);
  }
  template <class T>
  future<T> call_async(text to, text function, const arguments& given, const call_options& options,
                       outcome& err) const {
    distag_future* made = nullptr;
    const arguments::array args(given, err);
    if (!args.ok() || !has_worker(function, err)) return {};
    const raw_call_options raw(options, within);
    err.check(distag_call_async(worker, context, to.c_str(), function.c_str(), args.data(), args.size(), &raw, &made,
                                err.raw()));
    return future<T>(made);
  }
  distag_rref* remote(text to, text function, const arguments& given, const call_options& options, outcome& err) const {
    distag_rref* made = nullptr;
    const arguments::array args(given, err);
    if (!args.ok() || !has_worker(function, err)) return nullptr;
    const raw_call_options raw(options, within);
    err.check(
        distag_remote(worker, context, to.c_str(), function.c_str(), args.data(), args.size(), &raw, &made, err.raw()));
    return made;
  }

 private:
  // False, and a failure, in a context that is local.
  bool has_worker(text function, outcome& err) const {
    if (worker != nullptr || context == nullptr) return true;
    return err.fail(errc::invalid_argument, std::string("call \"") + function.c_str() +
                                                "\": context::local() has no worker: make the context of one");
  }
};

// The calls of a worker, a context (which records them) and an invocation (whose deadline bounds them).
template <class Self>
class calls {
 public:
  // Calls a function of the worker `to` and waits for its answer. Blocks.
  template <class T = value>
  T call(text to, text function, const arguments& args = {}, const call_options& options = {}, outcome err = {}) const {
    return as_caller().template call<T>(to, function, args, options, err);
  }
  template <class T = value>
  T call(text to, text function, const arguments& args, status& err) const {
    return call<T>(to, function, args, call_options(), outcome(err));
  }
  template <class T = value>
  T call(text to, text function, status& err) const {
    return call<T>(to, function, arguments(), call_options(), outcome(err));
  }
  template <class T = value>
  future<T> call_async(text to, text function, const arguments& args = {}, const call_options& options = {},
                       outcome err = {}) const {
    return as_caller().template call_async<T>(to, function, args, options, err);
  }
  template <class T = value>
  future<T> call_async(text to, text function, const arguments& args, status& err) const {
    return call_async<T>(to, function, args, call_options(), outcome(err));
  }
  template <class T = value>
  future<T> call_async(text to, text function, status& err) const {
    return call_async<T>(to, function, arguments(), call_options(), outcome(err));
  }
  // Calls a function and leaves its answer with the callee.
  rref remote(text to, text function, const arguments& args = {}, const call_options& options = {},
              outcome err = {}) const;
  rref remote(text to, text function, const arguments& args, status& err) const;
  rref remote(text to, text function, status& err) const;

 private:
  caller as_caller() const noexcept { return static_cast<const Self&>(*this).as_caller(); }
};

}  // namespace detail

// The gradients of this worker's leaves in a context. Immutable; outlives the context.
class gradients : public detail::handle<distag_gradients, distag_gradients_retain, distag_gradients_release> {
 public:
  std::size_t size() const noexcept { return distag_gradients_get_count(get()); }
  tensor leaf(std::size_t index) const noexcept { return tensor::retained(distag_gradients_get_tensor(get(), index)); }
  tensor gradient(std::size_t index) const noexcept {
    return tensor::retained(distag_gradients_get_gradient(get(), index));
  }
  // The gradient of a leaf; empty if no pass has reached it.
  tensor operator[](const tensor& leaf) const noexcept {
    return tensor::retained(distag_gradients_find(get(), leaf.get()));
  }
};

struct backward_options;  // in rref.hpp

// A forward pass and its backward passes. Thread-safe. Calls of a context are recorded; it ends with its creator's last
// copy.
class context : public detail::calls<context> {
 public:
  context() noexcept = default;
  explicit context(const worker& owner, outcome err = {});
  context(distag_context* owned, detail::worker_handle owner) noexcept : handle_(owned), worker_(std::move(owner)) {}
  // A context without a worker, to train within this process.
  static context local(outcome err = {}) {
    context made;
    err.check(distag_context_create(nullptr, made.handle_.put(), err.raw()));
    return made;
  }

  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  distag_context* get() const noexcept { return handle_.get(); }
  void close() noexcept { handle_.close(); }
  std::uint64_t id() const noexcept { return distag_context_get_id(get()); }

  // Runs a backward pass through every worker that the roots depend on. Blocks.
  void backward(tensors roots, outcome err = {}) const;
  void backward(tensors roots, const backward_options& options, outcome err = {}) const;
  future<void> backward_async(tensors roots, outcome err = {}) const;
  future<void> backward_async(tensors roots, const backward_options& options, outcome err = {}) const;

  // The gradients on this worker, summed over the passes. Blocks while a pass awaits its verdict.
  distag::gradients gradients(outcome err = {}) const {
    distag::gradients found;
    err.check(distag_get_gradients(get(), found.put(), err.raw()));
    return found;
  }
  tensor gradient(const tensor& leaf, outcome err = {}) const { return gradients(err)[leaf]; }
  // Completes when gradients() answers at once.
  future<void> settle_async(outcome err = {}) const {
    distag_future* made = nullptr;
    err.check(distag_context_settle_async(get(), &made, err.raw()));
    return future<void>(made);
  }

  distag_context_info info(outcome err = {}) const {
    distag_context_info found = DISTAG_CONTEXT_INFO_INIT;
    err.check(distag_context_get_info(get(), &found, err.raw()));
    return found;
  }
  std::vector<std::int32_t> known_ranks(outcome err = {}) const;
  std::string report(outcome err = {}) const {  // JSON
    distag_context* raw = get();
    return detail::copy_text(
        [raw](char* buffer, std::size_t capacity, std::size_t* size, distag_error* error) {
          return distag_context_copy_report(raw, buffer, capacity, size, error);
        },
        err);
  }

  detail::caller as_caller() const noexcept { return {worker_.get(), get(), nullptr}; }

 private:
  class raw_options;

  detail::handle<distag_context, distag_context_retain, distag_context_release> handle_;
  detail::worker_handle worker_;
};

namespace detail {

// The ranks that a function of C copies.
template <class Copy>
std::vector<std::int32_t> copy_ranks(Copy copy, outcome& err) {
  std::vector<std::int32_t> ranks;
  std::size_t count = 0;
  if (!err.check(copy(nullptr, std::size_t{0}, &count, err.raw()))) return ranks;
  for (;;) {
    ranks.resize(count);
    if (!err.check(copy(ranks.data(), ranks.size(), &count, err.raw()))) return {};
    if (count <= ranks.size()) break;
  }
  ranks.resize(count);
  return ranks;
}

}  // namespace detail

inline std::vector<std::int32_t> context::known_ranks(outcome err) const {
  distag_context* raw = get();
  return detail::copy_ranks(
      [raw](std::int32_t* ranks, std::size_t capacity, std::size_t* count, distag_error* error) {
        return distag_context_copy_known_ranks(raw, ranks, capacity, count, error);
      },
      err);
}

}  // namespace distag

#include "rref.hpp"

#endif
