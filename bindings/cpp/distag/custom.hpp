// Ops and hooks of the host.
#ifndef DISTAG_CUSTOM_HPP
#define DISTAG_CUSTOM_HPP

#include "callbacks.hpp"
#include "functions.hpp"

namespace distag {
namespace detail {

// Tensors that C lends; NULL becomes an empty tensor.
inline std::vector<tensor> retained_tensors(distag_tensor* const* lent, std::size_t count) {
  std::vector<tensor> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) all.push_back(tensor::retained(lent[i]));
  return all;
}

// Gives what forward or backward returned, a tensor or several, to C.
inline void give_tensors(tensor&& given, distag_tensor** out, std::size_t count, distag_error* err) {
  if (count != 1) {
    distag_error_set(err, DISTAG_E_INVALID_ARGUMENT, "a custom op: one tensor came, several are wanted");
    return;
  }
  out[0] = given.release();
}
inline void give_tensors(std::vector<tensor>&& given, distag_tensor** out, std::size_t count, distag_error* err) {
  if (given.size() != count) {
    distag_error_set(
        err, DISTAG_E_INVALID_ARGUMENT,
        ("a custom op: " + std::to_string(given.size()) + " tensors came, " + std::to_string(count) + " are wanted")
            .c_str());
    return;
  }
  for (std::size_t i = 0; i < count; ++i) out[i] = given[i].release();
}

// Calls forward or backward: with each tensor as an argument, or with all of them in a vector.
template <class Method, class Op, class... P>
struct op_caller {
  template <std::size_t... I>
  static auto spread(Op& op, Method method, const std::vector<tensor>& given, status& own, std::index_sequence<I...>) {
    return (op.*method)(pick<P>(given, I, own)...);
  }
  template <class Q>
  static decltype(auto) pick(const std::vector<tensor>& given, std::size_t index, status& own) {
    (void)index;
    (void)own;
    if constexpr (std::is_same<std::decay_t<Q>, status>::value) {
      return static_cast<status&>(own);
    } else if constexpr (std::is_same<std::decay_t<Q>, std::vector<tensor>>::value) {
      return static_cast<const std::vector<tensor>&>(given);
    } else {
      return static_cast<const tensor&>(given[index]);
    }
  }
  static void call(Op& op, Method method, const std::vector<tensor>& given, distag_tensor** out, std::size_t count,
                   distag_error* err) {
    constexpr std::size_t most = (std::size_t{0} + ... + (std::is_same<std::decay_t<P>, tensor>::value ? 1 : 0));
    if (most != 0 && given.size() != most) {
      distag_error_set(
          err, DISTAG_E_INVALID_ARGUMENT,
          ("a custom op takes " + std::to_string(most) + " tensors, " + std::to_string(given.size()) + " came")
              .c_str());
      return;
    }
    status own;
    auto made = spread(op, method, given, own, std::index_sequence_for<P...>());
    if (own) return copy_error(err, *own.raw());
    give_tensors(std::move(made), out, count, err);
  }
};

template <class Op>
struct custom {
  template <class Method>
  static distag_status run(void* user_data, Method method, distag_tensor* const* given, std::size_t given_count,
                           distag_tensor** out, std::size_t count, distag_error* err) {
    return guarded(err, [=] {
      signature<Method>::template apply<bind<Method>::template to>::call(
          *static_cast<Op*>(user_data), method, retained_tensors(given, given_count), out, count, err);
    });
  }
  template <class Method>
  struct bind {
    template <class... P>
    using to = op_caller<Method, Op, P...>;
  };
  static distag_status forward(void* user_data, distag_tensor* const* given, std::size_t given_count,
                               distag_tensor** out, std::size_t count, distag_error* err) {
    return run(user_data, &Op::forward, given, given_count, out, count, err);
  }
  static distag_status backward(void* user_data, distag_tensor* const* given, std::size_t given_count,
                                distag_tensor** out, std::size_t count, distag_error* err) {
    return run(user_data, &Op::backward, given, given_count, out, count, err);
  }
};

template <class Op, class = void>
struct has_backward : std::false_type {};
template <class Op>
struct has_backward<Op, std::void_t<decltype(&Op::backward)>> : std::true_type {};

}  // namespace detail

// Applies an op of the host's own: an object with
//
//   tensor forward(const tensor &x, ...)          the outputs; its inputs have no history
//   tensor backward(const tensor &gradient, ...)  the gradient of each input from that of each output, which is empty
//                                                 if none came; an empty result is zero. Without it: no gradient.
//
// Either may take a const std::vector<tensor> & for all, give a std::vector<tensor>, and take a `status &` as its last
// parameter. The object keeps what backward needs, and is deleted when no pass can need it. The name shows in errors.
template <class Op>
std::vector<tensor> apply_custom(text name, Op op, tensors inputs, std::size_t output_count, outcome err = {}) {
  distag_custom_op raw = DISTAG_CUSTOM_OP_INIT;
  raw.name = name.c_str();
  raw.forward = detail::custom<Op>::forward;
  if constexpr (detail::has_backward<Op>::value) raw.backward = detail::custom<Op>::backward;
  raw.user_data = new Op(std::move(op));
  raw.destroy = detail::delete_as<Op>;
  std::vector<tensor> made(output_count);
  err.check(distag_apply_custom(&raw, inputs.data(), inputs.size(), reinterpret_cast<distag_tensor**>(made.data()),
                                output_count, err.raw()));
  return made;
}
// The same with one output.
template <class Op>
tensor apply_custom(text name, Op op, tensors inputs, outcome err = {}) {
  return std::move(apply_custom(name, std::move(op), inputs, 1, err)[0]);
}

// hook(gradient) sees the whole gradient of the tensor; a tensor that it returns replaces the gradient, unless that
// tensor is empty.
template <class F>
std::uint64_t tensor::add_hook(F hook, outcome err) const {
  const distag_tensor_hook call = [](void* user_data, distag_tensor* gradient, distag_tensor** out,
                                     distag_error* error) {
    return detail::guarded(error, [=] {
      F& function = *static_cast<F*>(user_data);
      using result = detail::fallible_result<F, tensor>;
      if constexpr (std::is_void<result>::value) {
        detail::call_fallible(error, function, retained(gradient));
      } else {
        tensor given = detail::call_fallible(error, function, retained(gradient));
        if (error->code == DISTAG_OK) *out = given.release();
      }
    });
  };
  std::uint64_t id = 0;
  err.check(distag_tensor_add_hook(get(), call, new F(std::move(hook)), detail::delete_as<F>, &id, err.raw()));
  return id;
}

}  // namespace distag

#endif
