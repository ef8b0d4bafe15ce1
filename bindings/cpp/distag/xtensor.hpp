// Tensors as expressions of xtensor, and what xtensor computes as tensors.
// Not part of distag.hpp: it needs xtensor (Debian: libxtensor-dev).
#ifndef DISTAG_XTENSOR_HPP
#define DISTAG_XTENSOR_HPP

#include <distag.hpp>
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xnoalias.hpp>
#include <xtensor/xtensor.hpp>

namespace distag {

namespace detail {

inline const char* name_of(dtype type) noexcept {
  switch (type) {
    case dtype::float32:
      return "float32";
    case dtype::float64:
      return "float64";
    case dtype::int64:
      return "int64";
    case dtype::bool_:
      return "bool";
    default:
      return "of an unknown dtype";
  }
}

// The elements of a snapshot, which the buffer keeps: read-only, without a copy.
template <class T>
using snapshot_buffer = xt::xbuffer_adaptor<const T*, xt::smart_ownership, std::shared_ptr<const tensor>>;
template <class T>
using array_of = xt::xarray_adaptor<snapshot_buffer<T>, xt::layout_type::dynamic, std::vector<std::size_t>>;
template <class T, std::size_t N>
using tensor_of = xt::xtensor_adaptor<snapshot_buffer<T>, N, xt::layout_type::dynamic>;

// A snapshot of `source`, which has to have elements of T; empty if it has not.
template <class T>
tensor snapshot_of(const tensor& source, outcome& err) {
  constexpr dtype wanted = dtype_of<T>::value;
  if (err.failed()) return {};
  if (source && source.dtype() != wanted) {
    err.fail(errc::invalid_argument, std::string("as_xtensor: the tensor is ") + name_of(source.dtype()) + ", not " +
                                         name_of(wanted) + ": cast it first");
    return {};
  }
  return readable_snapshot(source, err);
}

// A snapshot as an adaptor of its shape; without one, an adaptor without elements.
template <class T, class Adaptor>
Adaptor adapted(tensor kept, std::size_t rank) {
  auto shape = xtl::make_sequence<typename Adaptor::inner_shape_type>(rank, 0);
  auto strides = xtl::make_sequence<typename Adaptor::inner_strides_type>(rank, 0);
  for (std::size_t i = 0; kept && i < rank; ++i) {
    shape[i] = static_cast<std::size_t>(kept.shape()[i]);
    if (shape[i] > 1) strides[i] = static_cast<std::ptrdiff_t>(kept.strides()[i]);  // else 0, as xtensor has it
  }
  const auto* data = kept ? static_cast<const T*>(distag_tensor_get_data(kept.get())) : nullptr;
  auto owner = std::make_shared<const tensor>(std::move(kept));
  return Adaptor(snapshot_buffer<T>(data, xt::compute_size(shape), std::move(owner)), shape, strides);
}

// Containers that own their elements; these can be moved into a tensor without a copy.
template <class E>
struct owns_elements : std::false_type {};
template <class Storage, xt::layout_type L, class Shape, class Tag>
struct owns_elements<xt::xarray_container<Storage, L, Shape, Tag>> : std::true_type {};
template <class Storage, std::size_t N, xt::layout_type L, class Tag>
struct owns_elements<xt::xtensor_container<Storage, N, L, Tag>> : std::true_type {};

template <class Container>
tensor taken(Container&& container, outcome& err) {
  auto owner = std::make_shared<Container>(std::move(container));
  const std::vector<std::int64_t> shape(owner->shape().begin(), owner->shape().end());
  const std::vector<std::int64_t> strides(owner->strides().begin(), owner->strides().end());
  const auto* data = owner->data();
  const std::size_t count = owner->size();
  return tensor::borrow(data, count, shape, std::move(owner), strides, err);
}

}  // namespace detail

// The elements of a tensor as they are now, read-only, as an expression of xtensor. Nothing is copied, strided tensors
// included. It keeps the memory: copies of it and of the tensor may be destroyed in any order.
// Fails: INVALID_ARGUMENT for another dtype.
template <class T>
detail::array_of<T> as_xtensor(const tensor& source, outcome err = {}) {
  tensor kept = detail::snapshot_of<T>(source, err);
  const std::size_t rank = kept ? kept.ndim() : 1;
  return detail::adapted<T, detail::array_of<T>>(std::move(kept), rank);
}

// The same for tensors of N dims, which xtensor walks faster.
// Fails: INVALID_ARGUMENT for another dtype or number of dims.
template <class T, std::size_t N>
detail::tensor_of<T, N> as_xtensor(const tensor& source, outcome err = {}) {
  tensor kept = detail::snapshot_of<T>(source, err);
  if (kept && kept.ndim() != N) {
    err.fail(errc::invalid_argument, "as_xtensor: the tensor has " + std::to_string(kept.ndim()) + " dims, not " +
                                         std::to_string(N) + ": reshape it first");
    kept.close();
  }
  return detail::adapted<T, detail::tensor_of<T, N>>(std::move(kept), N);
}

// A tensor of the elements of an expression. The elements of a container that is moved in are taken without a copy;
// such a tensor cannot be written, as one of tensor::take cannot.
template <class E>
tensor from_xtensor(E&& expression, outcome err = {}) {
  using given = std::decay_t<E>;
  using value_type = typename given::value_type;
  if constexpr (detail::owns_elements<given>::value && !std::is_lvalue_reference<E>::value &&
                !std::is_const<std::remove_reference_t<E>>::value) {
    return detail::taken(std::forward<E>(expression), err);
  } else {
    return detail::taken(xt::xarray<value_type, xt::layout_type::row_major>(std::forward<E>(expression)), err);
  }
}

}  // namespace distag

#endif
