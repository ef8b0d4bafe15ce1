// Tensors, and views of their memory.
#ifndef DISTAG_TENSOR_HPP
#define DISTAG_TENSOR_HPP

#include <memory>
#include <type_traits>

#include "callbacks.hpp"
#include "handle.hpp"
#include "op_methods.hpp"

namespace distag {

namespace detail {

template <class T>
struct dtype_of {
  static_assert(sizeof(T) == 0, "distag has tensors of float, double, std::int64_t and bool");
};
template <>
struct dtype_of<float> {
  static constexpr dtype value = dtype::float32;
};
template <>
struct dtype_of<double> {
  static constexpr dtype value = dtype::float64;
};
template <>
struct dtype_of<bool> {
  static constexpr dtype value = dtype::bool_;
};
template <>
struct dtype_of<long> {
  static constexpr dtype value = dtype::int64;
};
template <>
struct dtype_of<long long> {
  static constexpr dtype value = dtype::int64;
};
static_assert(sizeof(long long) == 8 && sizeof(bool) == 1, "the dtypes of distag");

}  // namespace detail

template <class T>
class view;
class mesh;

// How memory crosses in DLPack.
enum class dlpack : std::uint32_t {
  snapshot = 0,                // read-only; for the old struct, which cannot say so, a copy
  copy = DISTAG_DLPACK_COPY,   // memory of its own, which the consumer may write
  share = DISTAG_DLPACK_SHARE  // without a copy: the caller promises that the memory is not written
};

// A dense n-d array with its history. Thread-safe. The ops are its methods: see op_methods.hpp.
class tensor : public detail::handle<distag_tensor, distag_tensor_retain, distag_tensor_release>, public op_methods {
 public:
  tensor() noexcept = default;
  explicit tensor(distag_tensor* owned) noexcept : handle(owned) {}
  static tensor retained(distag_tensor* lent) noexcept { return tensor(handle::retained(lent).release()); }

  // Copies row-major memory of the shape. Fails: INVALID_ARGUMENT when `count` is not what the shape needs.
  template <class T>
  static tensor copy(const T* data, std::size_t count, ints shape, outcome err = {}) {
    tensor made;
    err.check(
        distag_tensor_create(data, count * sizeof(T), code_of<T>(), shape.data(), shape.size(), made.put(), err.raw()));
    return made;
  }
  // Copies numbers into a tensor of one dim, or of the shape.
  template <class T>
  static tensor of(std::initializer_list<T> numbers, outcome err = {}) {
    return copy(numbers.begin(), numbers.size(), {static_cast<std::int64_t>(numbers.size())}, err);
  }
  template <class T>
  static tensor of(std::initializer_list<T> numbers, ints shape, outcome err = {}) {
    return copy(numbers.begin(), numbers.size(), shape, err);
  }
  template <class T>
  static tensor of(const std::vector<T>& numbers, outcome err = {}) {
    static_assert(!std::is_same<T, bool>::value, "a std::vector<bool> has no memory of bools: use copy of an array");
    return copy(numbers.data(), numbers.size(), {static_cast<std::int64_t>(numbers.size())}, err);
  }
  template <class T>
  static tensor of(const std::vector<T>& numbers, ints shape, outcome err = {}) {
    static_assert(!std::is_same<T, bool>::value, "a std::vector<bool> has no memory of bools: use copy of an array");
    return copy(numbers.data(), numbers.size(), shape, err);
  }
  // A tensor of a single number, without dims.
  template <class T, std::enable_if_t<std::is_arithmetic<T>::value, int> = 0>
  static tensor of(T number, outcome err = {}) {
    return copy(&number, 1, {}, err);
  }

  // A tensor over the memory of a vector, which it owns from then on: nothing is copied. It cannot be written: a
  // parameter that an optimizer steps is made by `of`.
  template <class T>
  static tensor take(std::vector<T>&& numbers, ints shape, outcome err = {}) {
    static_assert(!std::is_same<T, bool>::value, "a std::vector<bool> has no memory of bools");
    auto* kept = new std::vector<T>(std::move(numbers));
    tensor made;
    err.check(distag_tensor_create_borrowed(kept->data(), kept->size() * sizeof(T), code_of<T>(), shape.data(), nullptr,
                                            shape.size(), kept, detail::delete_as<std::vector<T>>, made.put(),
                                            err.raw()));
    return made;
  }
  template <class T>
  static tensor take(std::vector<T>&& numbers, outcome err = {}) {
    const auto count = static_cast<std::int64_t>(numbers.size());
    return take(std::move(numbers), ints{count}, err);
  }

  // A tensor over memory of the host, which stays as it is as long as a copy of `owner` is held. strides in elements;
  // {} is row-major.
  template <class T>
  static tensor borrow(const T* data, std::size_t count, ints shape, std::shared_ptr<const void> owner,
                       ints strides = {}, outcome err = {}) {
    using shared = std::shared_ptr<const void>;
    tensor made;
    if (!strides.empty() && strides.size() != shape.size()) {
      err.fail(errc::invalid_argument, "tensor::borrow: give a stride for each dim, or no strides");
      return made;
    }
    err.check(distag_tensor_create_borrowed(
        data, count * sizeof(T), code_of<T>(), shape.data(), strides.empty() ? nullptr : strides.data(), shape.size(),
        new shared(std::move(owner)), detail::delete_as<shared>, made.put(), err.raw()));
    return made;
  }

  distag::dtype dtype() const noexcept { return static_cast<distag::dtype>(distag_tensor_get_dtype(get())); }
  std::size_t ndim() const noexcept { return distag_tensor_get_ndim(get()); }
  ints shape() const noexcept { return {distag_tensor_get_shape(get()), ndim()}; }      // lent by the tensor
  ints strides() const noexcept { return {distag_tensor_get_strides(get()), ndim()}; }  // lent; in elements
  std::size_t count() const noexcept { return distag_tensor_get_count(get()); }
  std::size_t size_bytes() const noexcept { return distag_tensor_get_size(get()); }
  std::uint64_t id() const noexcept { return distag_tensor_get_id(get()); }
  bool is_contiguous() const noexcept { return has_flag(DISTAG_TENSOR_CONTIGUOUS); }
  bool is_borrowed() const noexcept { return has_flag(DISTAG_TENSOR_BORROWED); }
  bool has_history() const noexcept { return has_flag(DISTAG_TENSOR_HAS_HISTORY); }

  bool requires_grad() const noexcept { return distag_tensor_get_requires_grad(get()) == 1; }
  tensor requires_grad(bool wanted, outcome err = {}) const {
    err.check(distag_tensor_set_requires_grad(get(), wanted ? 1 : 0, err.raw()));
    return *this;
  }

  // The only element.
  double item(outcome err = {}) const {
    double found = 0;
    err.check(distag_tensor_get_item(get(), &found, err.raw()));
    return found;
  }
  // The elements row-major, copied. Fails: INVALID_ARGUMENT for another dtype.
  template <class T>
  std::vector<T> to_vector(outcome err = {}) const {
    static_assert(!std::is_same<T, bool>::value, "a std::vector<bool> has no memory: use view<bool>()");
    std::vector<T> found;
    if (!is_of<T>(err)) return found;
    found.resize(count());
    err.check(distag_tensor_copy_data(get(), found.data(), found.size() * sizeof(T), err.raw()));
    return found;
  }
  template <class T>
  distag::view<T> view(outcome err = {}) const;

  // The present values, without history; copies nothing until one of the two is written.
  tensor snapshot(outcome err = {}) const {
    tensor made;
    err.check(distag_tensor_create_snapshot(get(), made.put(), err.raw()));
    return made;
  }

  // Sets the values in place, unrecorded.
  template <class T>
  void write(const T* data, std::size_t count, outcome err = {}) const {
    if (is_of<T>(err)) err.check(distag_tensor_write(get(), data, count * sizeof(T), err.raw()));
  }
  template <class T>
  void write(const std::vector<T>& numbers, outcome err = {}) const {
    write(numbers.data(), numbers.size(), err);
  }
  template <class T>
  void write(std::initializer_list<T> numbers, outcome err = {}) const {
    write(numbers.begin(), numbers.size(), err);
  }
  void assign(const tensor& source, outcome err = {}) const {
    err.check(distag_tensor_assign(get(), source.get(), err.raw()));
  }
  void add_scaled(const tensor& source, double scale, outcome err = {}) const {
    err.check(distag_tensor_add_scaled(get(), source.get(), scale, err.raw()));
  }

  // The spec by which it lies on a mesh: "('data', None)"; nullptr when it is not sharded. Lent by the tensor.
  const char* spec() const noexcept { return distag_tensor_get_spec(get()); }
  distag::mesh mesh() const noexcept;  // its mesh, or the line of one; empty when it is not sharded
  bool is_deferred() const noexcept { return has_flag(DISTAG_TENSOR_DEFERRED); }
  // The part that this member has, recorded and without a copy. Collective; sends nothing.
  tensor local(const char* gradient_spec = nullptr, outcome err = {}) const {
    tensor made;
    err.check(distag_tensor_to_local(get(), gradient_spec, made.put(), err.raw()));
    return made;
  }
  tensor local(status& err) const { return local(nullptr, outcome(err)); }
  using op_methods::gather;  // by an index
  // The whole as a plain tensor, on the member of that rank (empty elsewhere), or with -1 on all. Collective. Blocks.
  tensor gather(std::int32_t rank = -1, outcome err = {}) const {
    tensor made;
    err.check(distag_tensor_gather(get(), rank, DISTAG_FOREVER, made.put(), err.raw()));
    return made;
  }
  tensor gather(status& err) const { return gather(-1, outcome(err)); }
  // The same values under another spec, recorded; `flags` are of distag_redistribute_flag. Collective. Blocks.
  tensor redistribute(const char* spec, std::uint32_t flags = 0, outcome err = {}) const {
    tensor made;
    err.check(distag_redistribute(get(), spec, flags, made.put(), err.raw()));
    return made;
  }
  tensor redistribute(const char* spec, status& err) const { return redistribute(spec, 0, outcome(err)); }

  // DLPack. An export belongs to the consumer, which ends it by its deleter. An import takes `managed` on success.
  DLManagedTensorVersioned* to_dlpack(dlpack how = dlpack::snapshot, outcome err = {}) const {
    DLManagedTensorVersioned* managed = nullptr;
    err.check(distag_tensor_export_dlpack(get(), static_cast<std::uint32_t>(how), &managed, err.raw()));
    return managed;
  }
  DLManagedTensor* to_legacy_dlpack(dlpack how = dlpack::snapshot, outcome err = {}) const {
    DLManagedTensor* managed = nullptr;
    err.check(distag_tensor_export_dlpack_legacy(get(), static_cast<std::uint32_t>(how), &managed, err.raw()));
    return managed;
  }
  static tensor from_dlpack(DLManagedTensorVersioned* managed, outcome err = {}) {
    tensor made;
    err.check(distag_tensor_import_dlpack(managed, made.put(), err.raw()));
    return made;
  }
  static tensor from_dlpack(DLManagedTensor* managed, outcome err = {}) {
    tensor made;
    err.check(distag_tensor_import_dlpack_legacy(managed, made.put(), err.raw()));
    return made;
  }

  // A hook sees the gradient of this tensor in a backward pass, and may replace it: see custom.hpp.
  template <class F>
  std::uint64_t add_hook(F hook, outcome err = {}) const;
  void remove_hook(std::uint64_t id, outcome err = {}) const {
    err.check(distag_tensor_remove_hook(get(), id, err.raw()));
  }

  // Whether two handles stand for one tensor; elements are compared by a.eq(b).
  friend bool operator==(const tensor& a, const tensor& b) noexcept { return a.id() == b.id(); }
  friend bool operator!=(const tensor& a, const tensor& b) noexcept { return !(a == b); }
  friend bool operator<(const tensor& a, const tensor& b) noexcept { return a.id() < b.id(); }

  // Whether the tensor has elements of T.
  template <class T>
  bool is_of(outcome& err) const {
    const distag_dtype found = distag_tensor_get_dtype(get());
    if (found == code_of<T>()) return true;
    distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;  // an invalid handle reports why
    if (found == 0) return err.check(distag_tensor_get_info(get(), &info, err.raw()));
    return err.fail(errc::invalid_argument, "the tensor has another dtype: cast it first");
  }

 private:
  template <class T>
  static constexpr distag_dtype code_of() noexcept {
    return static_cast<distag_dtype>(detail::dtype_of<T>::value);
  }
  bool has_flag(std::uint32_t flag) const noexcept {
    distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
    return distag_tensor_get_info(get(), &info, nullptr) == DISTAG_OK && (info.flags & flag) != 0;
  }
};

static_assert(sizeof(tensor) == sizeof(distag_tensor*) && std::is_standard_layout<tensor>::value,
              "an array of tensors is an array of handles");

inline tensors::tensors(const tensor* data, std::size_t size) noexcept
    : data_(reinterpret_cast<distag_tensor* const*>(data)), size_(size) {}
inline tensors::tensors(std::initializer_list<tensor> items) noexcept : tensors(items.begin(), items.size()) {}
inline tensors::tensors(const std::vector<tensor>& items) noexcept : tensors(items.data(), items.size()) {}
inline tensors::tensors(const tensor& item) noexcept : tensors(&item, 1) {}
inline tensor_or_none::tensor_or_none(const tensor& given) noexcept : raw_(given.get()) {}

inline const tensor& op_methods::self() const { return static_cast<const tensor&>(*this); }

namespace detail {

// The present values where they can be read: a process has not the elements of a sharded tensor as a whole.
inline tensor readable_snapshot(const tensor& source, outcome& err) {
  tensor made = source.snapshot(err);
  if (!made || made.count() == 0 || distag_tensor_get_data(made.get()) != nullptr) return made;
  err.fail(errc::invalid_state, "the elements are not here: use local() or gather()");
  return {};
}

}  // namespace detail

// The elements of a tensor as they were when the view was made, row-major and read-only. Nothing is copied, unless the
// tensor is strided. It keeps the memory: copies of it and of the tensor may be destroyed in any order.
template <class T>
class view {
 public:
  using value_type = T;
  using const_iterator = const T*;

  view() noexcept = default;
  view(const tensor& source, outcome err = {}) : kept_(make(source, err)) {}

  const T* data() const noexcept {
    return kept_ ? static_cast<const T*>(distag_tensor_get_data(kept_.get())) : nullptr;
  }
  std::size_t size() const noexcept { return kept_ ? kept_.count() : 0; }
  bool empty() const noexcept { return size() == 0; }
  ints shape() const noexcept { return kept_ ? kept_.shape() : ints(); }  // lent by the view
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size(); }
  const T& operator[](std::size_t index) const noexcept { return data()[index]; }

 private:
  static tensor make(const tensor& source, outcome& err) {
    if (!source.is_of<T>(err)) return {};
    const tensor snapshot = detail::readable_snapshot(source, err);
    return err.failed() || snapshot.is_contiguous() ? snapshot : snapshot.clone(err);
  }

  tensor kept_;
};

template <class T>
distag::view<T> tensor::view(outcome err) const {
  return distag::view<T>(*this, err);
}

}  // namespace distag

template <>
struct std::hash<distag::tensor> {
  std::size_t operator()(const distag::tensor& tensor) const noexcept {
    return std::hash<std::uint64_t>()(tensor.id());
  }
};

#endif
