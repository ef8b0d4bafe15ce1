// References to values that live at their owners.
#ifndef DISTAG_RREF_HPP
#define DISTAG_RREF_HPP

#include "context.hpp"

namespace distag {

// A name of a value at its owner, which travels in any call. Thread-safe.
class rref : public detail::handle<distag_rref, distag_rref_retain, distag_rref_release> {
 public:
  rref() noexcept = default;
  explicit rref(distag_rref* owned) noexcept : handle(owned) {}
  static rref retained(distag_rref* lent) noexcept { return rref(handle::retained(lent).release()); }

  // The value: at its owner itself, elsewhere a copy. With a context the copy is recorded. Blocks.
  template <class T = value>
  T fetch(const call_options& options = {}, outcome err = {}) const {
    return fetch_in<T>(nullptr, options, err);
  }
  template <class T = value>
  T fetch(status& err) const {
    return fetch<T>(call_options(), outcome(err));
  }
  template <class T = value>
  T fetch(const context& within, const call_options& options = {}, outcome err = {}) const {
    return fetch_in<T>(within.get(), options, err);
  }
  template <class T = value>
  T fetch(const context& within, status& err) const {
    return fetch<T>(within, call_options(), outcome(err));
  }
  template <class T = value>
  future<T> fetch_async(const context& within = {}, const call_options& options = {}, outcome err = {}) const {
    distag_future* made = nullptr;
    const detail::raw_call_options raw(options);
    err.check(distag_rref_fetch_async(get(), within.get(), &raw, &made, err.raw()));
    return future<T>(made);
  }
  template <class T = value>
  future<T> fetch_async(const context& within, status& err) const {
    return fetch_async<T>(within, call_options(), outcome(err));
  }
  // The value itself, at its owner.
  template <class T = value>
  T local(outcome err = {}) const {
    distag_value* found = nullptr;
    err.check(distag_rref_get_local(get(), &found, err.raw()));
    return detail::read<T>(found, err);
  }
  // The host object behind it, at its owner: lent by the reference, nullptr after a failure.
  template <class T>
  T* object(outcome err = {}) const {
    distag_value* found = nullptr;
    void* object = nullptr;
    if (err.check(distag_rref_get_local(get(), &found, err.raw()))) {
      err.check(distag_value_get_object(found, detail::type_name<T>().c_str(), &object, err.raw()));
    }
    return static_cast<T*>(object);
  }

  const char* owner() const noexcept { return distag_rref_get_owner(get()); }  // lent: name of its worker
  bool is_owner() const noexcept { return distag_rref_is_owner(get()) == 1; }
  bool is_confirmed() const noexcept { return distag_rref_is_confirmed(get()) == 1; }
  std::uint64_t id() const noexcept { return distag_rref_get_id(get()); }

  friend bool operator==(const rref& a, const rref& b) noexcept { return a.id() == b.id(); }
  friend bool operator!=(const rref& a, const rref& b) noexcept { return !(a == b); }

 private:
  template <class T>
  T fetch_in(distag_context* within, const call_options& options, outcome& err) const {
    value found;
    const detail::raw_call_options raw(options);
    err.check(distag_rref_fetch(get(), within, &raw, found.put(), err.raw()));
    return detail::read<T>(found.get(), err);
  }
};

template <>
struct convert<rref> {
  static distag_value* lend(const rref& given) noexcept { return distag_rref_as_value(given.get()); }
  static distag_value* to(const rref& given, conversion& way) {
    if (!given) return way.fail(errc::invalid_argument, "an empty reference"), nullptr;
    return value::retained(lend(given)).release();
  }
  static rref from(distag_value* given, conversion& way) {
    distag_rref* found = nullptr;
    way.check(distag_value_get_rref(given, &found, way.raw()));
    return rref::retained(found);
  }
};

namespace detail {

template <class Self>
rref calls<Self>::remote(text to, text function, const arguments& args, const call_options& options,
                         outcome err) const {
  return rref(as_caller().remote(to, function, args, options, err));
}
template <class Self>
rref calls<Self>::remote(text to, text function, const arguments& args, status& err) const {
  return remote(to, function, args, call_options(), outcome(err));
}
template <class Self>
rref calls<Self>::remote(text to, text function, status& err) const {
  return remote(to, function, arguments(), call_options(), outcome(err));
}

}  // namespace detail

// How a backward pass runs.
struct backward_options {
  backward_mode mode = backward_mode::smart;
  bool retain_graph = false;
  bool create_graph = false;         // gradients have a history; retains the graph
  nanoseconds timeout{0};            // 0: none
  std::vector<tensor> seeds{};       // one for each root, empty for a scalar; {}: all are scalars
  std::vector<rref> remote_roots{};  // scalars that live on other workers
};

// The same options in the form of C.
class context::raw_options : public distag_backward_options {
 public:
  raw_options(const backward_options& given, std::size_t root_count, outcome& err)
      : distag_backward_options(DISTAG_BACKWARD_OPTIONS_INIT) {
    static_assert(sizeof(rref) == sizeof(distag_rref*), "an array of references is an array of handles");
    mode = static_cast<distag_backward_mode_type>(given.mode);
    retain_graph = given.retain_graph ? 1 : 0;
    create_graph = given.create_graph ? 1 : 0;
    timeout_ns = given.timeout.count();
    seeds = given.seeds.empty() ? nullptr : reinterpret_cast<distag_tensor* const*>(given.seeds.data());
    remote_roots = reinterpret_cast<distag_rref* const*>(given.remote_roots.data());
    remote_root_count = given.remote_roots.size();
    if (!given.seeds.empty() && given.seeds.size() != root_count) {
      well_ = err.fail(errc::invalid_argument, "backward: give a seed for each root, empty for a scalar");
    }
  }
  bool ok() const noexcept { return well_; }

 private:
  bool well_ = true;
};

inline void context::backward(tensors roots, const backward_options& options, outcome err) const {
  const raw_options raw(options, roots.size(), err);
  if (raw.ok()) err.check(distag_backward(get(), roots.data(), roots.size(), &raw, err.raw()));
}
inline void context::backward(tensors roots, outcome err) const { backward(roots, backward_options(), err); }
inline future<void> context::backward_async(tensors roots, outcome err) const {
  return backward_async(roots, backward_options(), err);
}
inline future<void> context::backward_async(tensors roots, const backward_options& options, outcome err) const {
  distag_future* made = nullptr;
  const raw_options raw(options, roots.size(), err);
  if (raw.ok()) err.check(distag_backward_async(get(), roots.data(), roots.size(), &raw, &made, err.raw()));
  return future<void>(made);
}

}  // namespace distag

#endif
