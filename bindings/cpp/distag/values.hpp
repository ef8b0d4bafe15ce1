// Values of calls, and how they become types of C++:
//
//   bool, integers, floats      a bool, an int64, a float64; a number that does not fit is an error, and so is an
//                               integer that would lose digits as a float
//   std::string                 a text; to a call also std::string_view and const char *
//   bytes                       bytes
//   std::nullptr_t              null; std::optional<T>: null or T
//   std::vector<T>              a list; std::tuple<T...> and std::pair: a list of that length
//   std::map<std::string, T>    a map
//   tensor, rref, value         themselves
//
// Other types get a specialisation of distag::convert.
#ifndef DISTAG_VALUES_HPP
#define DISTAG_VALUES_HPP

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <tuple>

#include "tensor.hpp"

namespace distag {

using bytes = std::vector<std::byte>;

// A text that ends in NUL: a literal or a std::string.
class text {
 public:
  text(const char* given) noexcept : data_(given) {}
  text(const std::string& given) noexcept : data_(given.c_str()) {}
  const char* c_str() const noexcept { return data_; }

 private:
  const char* data_;
};

// A conversion in progress: a path says where it fails, such as args[1].layers[0].
class conversion {
 public:
  explicit conversion(outcome& err) noexcept : err_(&err) {}
  distag_error* raw() noexcept { return err_->raw(); }
  bool failed() const noexcept { return err_->failed(); }
  // Whether a call of C succeeded.
  bool check(distag_status code) noexcept { return code == DISTAG_OK; }
  void fail(errc code, const std::string& message) {
    distag_error_set(raw(), static_cast<distag_status>(code), message.c_str());
  }
  // Puts a step before the path of a failure.
  void within(const std::string& step) { path_.insert(0, step); }
  // Puts the path into the message.
  void finish() {
    if (failed() && !path_.empty()) {
      distag_error_set(raw(), raw()->code, (path_ + ": " + std::string(raw()->message)).c_str());
    }
  }

 private:
  outcome* err_;
  std::string path_;
};

// to() makes a value, one reference for the caller, or NULL; from() reads one that is lent. Both leave failures in the
// conversion. lend(), if there is one, gives the value that the argument already is.
template <class T, class Enable = void>
struct convert;

class value;

namespace detail {

using value_handle = handle<distag_value, distag_value_retain, distag_value_release>;

template <class T, class = void>
struct is_convertible : std::false_type {};
template <class T>
struct is_convertible<T, std::void_t<decltype(&convert<T>::to)>> : std::true_type {};

template <class T, class = void>
struct is_lent : std::false_type {};
template <class T>
struct is_lent<T, std::void_t<decltype(&convert<T>::lend)>> : std::true_type {};

// The types that value has a constructor for, beside its own. The order counts: for a value itself is_convertible must
// not be asked before its converter is known.
template <class T>
using becomes_value =
    std::conjunction<std::negation<std::is_same<T, value>>, std::negation<std::is_same<T, tensor>>, is_convertible<T>>;

// The name of a type of host objects, equal in all source files that include the type: the compiler's spelling of T.
template <class T>
std::string type_name() {
  std::string found = __PRETTY_FUNCTION__;
  const std::size_t begin = found.find("T = ") + 4, end = std::min(found.rfind("; std::string = "), found.rfind(']'));
  found = found.substr(begin, end - begin);
  if (found.find("anonymous") != std::string::npos) {  // types of two source files are two types
    static char place = 0;
    found += std::to_string(reinterpret_cast<std::uintptr_t>(&place));
  }
  return found;
}

}  // namespace detail

// The content of calls. Immutable.
class value : public detail::value_handle {
 public:
  value() noexcept = default;  // an empty handle; null is value(nullptr)
  explicit value(distag_value* owned) noexcept : handle(owned) {}
  static value retained(distag_value* lent) noexcept { return value(handle::retained(lent).release()); }
  value(const tensor& given) noexcept : value(handle::retained(distag_tensor_as_value(given.get())).release()) {}
  template <class T, std::enable_if_t<detail::becomes_value<std::decay_t<T>>::value, int> = 0>
  value(const T& given, outcome err = {}) {
    outcome quiet(err.raw());
    conversion way(quiet);
    value made(convert<std::decay_t<T>>::to(given, way));
    way.finish();
    if (err.check(err.raw()->code)) *this = std::move(made);
  }
  // A host object, for functions of this process that reach it by an rref.
  template <class T>
  static value object(std::unique_ptr<T> given, outcome err = {}) {
    value made;
    err.check(distag_value_create_object(detail::type_name<T>().c_str(), given.release(), detail::delete_as<T>,
                                         made.put(), err.raw()));
    return made;
  }

  value_kind kind() const noexcept { return static_cast<value_kind>(distag_value_get_kind(get())); }
  bool is_null() const noexcept { return kind() == value_kind::null_; }
  std::size_t size() const noexcept { return distag_value_get_count(get()); }  // items of a list or a map
  value operator[](std::size_t index) const noexcept { return retained(distag_value_get_item(get(), index)); }
  value operator[](const std::string& key) const noexcept {
    return retained(distag_value_get_entry(get(), key.c_str()));
  }
  const char* key(std::size_t index) const noexcept { return distag_value_get_key(get(), index); }  // lent; sorted

  template <class T>
  T as(outcome err = {}) const;
  // A host object of this process, lent by the value; nullptr after a failure.
  template <class T>
  T* object(outcome err = {}) const {
    void* found = nullptr;
    err.check(distag_value_get_object(get(), detail::type_name<T>().c_str(), &found, err.raw()));
    return static_cast<T*>(found);
  }
};

template <>
struct convert<value> {
  static distag_value* lend(const value& given) noexcept { return given.get(); }
  static distag_value* to(const value& given, conversion& way) {
    if (!given) return way.fail(errc::invalid_argument, "an empty value; null is nullptr"), nullptr;
    return value(given).release();
  }
  static value from(distag_value* given, conversion&) { return value::retained(given); }
};

template <>
struct convert<tensor> {
  static distag_value* lend(const tensor& given) noexcept { return distag_tensor_as_value(given.get()); }
  static distag_value* to(const tensor& given, conversion& way) {
    if (!given) return way.fail(errc::invalid_argument, "an empty tensor"), nullptr;
    return value(given).release();
  }
  static tensor from(distag_value* given, conversion& way) {
    distag_tensor* found = nullptr;
    way.check(distag_value_get_tensor(given, &found, way.raw()));
    return tensor::retained(found);
  }
};

template <>
struct convert<bool> {
  static distag_value* to(bool given, conversion& way) {
    distag_value* made = nullptr;
    way.check(distag_value_create_bool(given ? 1 : 0, &made, way.raw()));
    return made;
  }
  static bool from(distag_value* given, conversion& way) {
    std::int32_t found = 0;
    way.check(distag_value_get_bool(given, &found, way.raw()));
    return found == 1;
  }
};

template <class T>
struct convert<T, std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, bool>::value>> {
  static distag_value* to(T given, conversion& way) {
    distag_value* made = nullptr;
    if (sizeof(T) == 8 && std::is_unsigned<T>::value && (static_cast<std::uint64_t>(given) >> 63) != 0) {
      return way.fail(errc::invalid_argument, "an integer that does not fit into int64"), nullptr;
    }
    way.check(distag_value_create_int64(static_cast<std::int64_t>(given), &made, way.raw()));
    return made;
  }
  static T from(distag_value* given, conversion& way) {
    std::int64_t found = 0;
    if (!way.check(distag_value_get_int64(given, &found, way.raw()))) return 0;
    const T narrowed = static_cast<T>(found);
    if (static_cast<std::int64_t>(narrowed) == found && (narrowed < T()) == (found < 0)) return narrowed;
    way.fail(errc::invalid_argument, "an integer that does not fit: " + std::to_string(found));
    return 0;
  }
};

template <class T>
struct convert<T, std::enable_if_t<std::is_floating_point<T>::value>> {
  static distag_value* to(T given, conversion& way) {
    distag_value* made = nullptr;
    const double number = narrowed<double>(given, way);
    if (!way.failed()) way.check(distag_value_create_float64(number, &made, way.raw()));
    return made;
  }
  static T from(distag_value* given, conversion& way) {
    if (distag_value_get_kind(given) == DISTAG_VALUE_INT64) return whole(convert<std::int64_t>::from(given, way), way);
    double found = 0;
    way.check(distag_value_get_float64(given, &found, way.raw()));
    return narrowed<T>(found, way);
  }

 private:
  // An integer keeps all its digits.
  static T whole(std::int64_t number, conversion& way) {
    const T found = static_cast<T>(number);
    if (found < static_cast<T>(0x1p63) && static_cast<std::int64_t>(found) == number) return found;
    way.fail(errc::invalid_argument, "an integer that would lose digits as a float: " + std::to_string(number));
    return 0;
  }
  // A finite number stays finite.
  template <class To, class From>
  static To narrowed(From number, conversion& way) {
    const To found = static_cast<To>(number);
    if (std::isinf(found) && !std::isinf(number)) {
      std::ostringstream text;
      text << number;
      way.fail(errc::invalid_argument, "a number that does not fit: " + text.str());
    }
    return found;
  }
};

template <>
struct convert<std::string> {
  static distag_value* to(const std::string& given, conversion& way) {
    distag_value* made = nullptr;
    if (given.find('\0') != std::string::npos) {
      return way.fail(errc::invalid_argument, "a text with NUL: send it as bytes"), nullptr;
    }
    way.check(distag_value_create_text(given.c_str(), &made, way.raw()));
    return made;
  }
  static std::string from(distag_value* given, conversion& way) {
    const char* found = nullptr;
    way.check(distag_value_get_text(given, &found, way.raw()));
    return found != nullptr ? found : "";
  }
};
template <>
struct convert<std::string_view> {
  static distag_value* to(std::string_view given, conversion& way) {
    return convert<std::string>::to(std::string(given), way);
  }
};
template <>
struct convert<const char*> {
  static distag_value* to(const char* given, conversion& way) {
    distag_value* made = nullptr;
    way.check(distag_value_create_text(given, &made, way.raw()));
    return made;
  }
};
template <>
struct convert<char*> : convert<const char*> {};

template <>
struct convert<std::nullptr_t> {
  static distag_value* to(std::nullptr_t, conversion& way) {
    distag_value* made = nullptr;
    way.check(distag_value_create_null(&made, way.raw()));
    return made;
  }
  static std::nullptr_t from(distag_value* given, conversion& way) {
    if (distag_value_get_kind(given) != DISTAG_VALUE_NULL) {
      way.fail(errc::invalid_argument, "null is wanted, another kind came");
    }
    return nullptr;
  }
};

template <>
struct convert<bytes> {
  static distag_value* to(const bytes& given, conversion& way) {
    distag_value* made = nullptr;
    const std::byte nothing{};
    way.check(distag_value_create_bytes(given.empty() ? &nothing : given.data(), given.size(), &made, way.raw()));
    return made;
  }
  static bytes from(distag_value* given, conversion& way) {
    const void* found = nullptr;
    std::size_t size = 0;
    if (!way.check(distag_value_get_bytes(given, &found, &size, way.raw())) || size == 0) return {};
    const auto* first = static_cast<const std::byte*>(found);
    return {first, first + size};
  }
};

template <class T>
struct convert<std::optional<T>> {
  static distag_value* to(const std::optional<T>& given, conversion& way) {
    return given ? convert<T>::to(*given, way) : convert<std::nullptr_t>::to(nullptr, way);
  }
  static std::optional<T> from(distag_value* given, conversion& way) {
    if (distag_value_get_kind(given) == DISTAG_VALUE_NULL) return {};
    return convert<T>::from(given, way);
  }
};

namespace detail {

// Owns the items of a list or a map that is being made.
class items {
 public:
  explicit items(std::size_t count) { made_.reserve(count); }
  template <class T>
  bool add(const T& given, const std::string& step, conversion& way) {
    distag_value* made = convert<T>::to(given, way);
    if (made != nullptr && distag_value_get_kind(made) == DISTAG_VALUE_OBJECT) {
      distag_value_release(made);
      made = nullptr;
      way.fail(errc::invalid_argument, "a host object stays where it is: share it, and send the rref");
    }
    if (made == nullptr) return way.within(step), false;
    made_.emplace_back(value(made));
    return true;
  }
  distag_value* list(conversion& way) const {
    distag_value* made = nullptr;
    way.check(distag_value_create_list(raw(), made_.size(), &made, way.raw()));
    return made;
  }
  distag_value* map(const std::vector<const char*>& keys, conversion& way) const {
    distag_value* made = nullptr;
    way.check(distag_value_create_map(keys.data(), raw(), made_.size(), &made, way.raw()));
    return made;
  }

 private:
  distag_value* const* raw() const noexcept { return reinterpret_cast<distag_value* const*>(made_.data()); }
  std::vector<value> made_;
};
static_assert(sizeof(value) == sizeof(distag_value*), "an array of values is an array of handles");

inline std::string step_of(std::size_t index) { return "[" + std::to_string(index) + "]"; }

template <class T>
T from_item(distag_value* given, std::size_t index, conversion& way) {
  const bool was_well = !way.failed();
  T found = convert<T>::from(distag_value_get_item(given, index), way);
  if (was_well && way.failed()) way.within(step_of(index));
  return found;
}

inline bool is_kind(distag_value* given, value_kind kind, const char* name, conversion& way) {
  if (distag_value_get_kind(given) == static_cast<distag_value_kind>(kind)) return true;
  return way.fail(errc::invalid_argument, std::string("a ") + name + " is wanted, another kind came"), false;
}

}  // namespace detail

template <class T>
struct convert<std::vector<T>> {
  static distag_value* to(const std::vector<T>& given, conversion& way) {
    distag_value* made = nullptr;
    if constexpr (std::is_same<T, double>::value) {
      way.check(distag_value_create_float64_list(given.data(), given.size(), &made, way.raw()));
    } else if constexpr (std::is_same<T, std::int64_t>::value) {
      way.check(distag_value_create_int64_list(given.data(), given.size(), &made, way.raw()));
    } else {
      detail::items items(given.size());
      for (std::size_t i = 0; i < given.size(); ++i) {
        if (!items.add(static_cast<const T&>(given[i]), detail::step_of(i), way)) return nullptr;
      }
      made = items.list(way);
    }
    return made;
  }
  static std::vector<T> from(distag_value* given, conversion& way) {
    std::vector<T> found;
    if (!detail::is_kind(given, value_kind::list, "list", way)) return found;
    const std::size_t count = distag_value_get_count(given);
    [[maybe_unused]] std::size_t copied = 0;
    if constexpr (std::is_same<T, double>::value) {
      found.resize(count);
      if (distag_value_copy_float64s(given, found.data(), count, &copied, nullptr) == DISTAG_OK) {
        for (std::size_t i = 0; i < count && !way.failed(); ++i) {  // integers above 2^53 may have lost digits
          if (std::abs(found[i]) >= 0x1p53) found[i] = detail::from_item<double>(given, i, way);
        }
        return found;
      }
    } else if constexpr (std::is_same<T, std::int64_t>::value) {
      found.resize(count);
      if (distag_value_copy_int64s(given, found.data(), count, &copied, nullptr) == DISTAG_OK) return found;
    }
    found.clear();  // item by item, which tells the place of a failure
    found.reserve(count);
    for (std::size_t i = 0; i < count && !way.failed(); ++i) found.push_back(detail::from_item<T>(given, i, way));
    return found;
  }
};

template <class T>
struct convert<std::map<std::string, T>> {
  static distag_value* to(const std::map<std::string, T>& given, conversion& way) {
    detail::items items(given.size());
    std::vector<const char*> keys;
    for (const auto& [key, item] : given) {
      if (key.find('\0') != std::string::npos) {
        return way.fail(errc::invalid_argument, "a key with NUL after \"" + std::string(key.c_str()) + '"'), nullptr;
      }
      if (!items.add(item, "." + key, way)) return nullptr;
      keys.push_back(key.c_str());
    }
    return items.map(keys, way);
  }
  static std::map<std::string, T> from(distag_value* given, conversion& way) {
    std::map<std::string, T> found;
    if (!detail::is_kind(given, value_kind::map, "map", way)) return found;
    for (std::size_t i = 0; i < distag_value_get_count(given) && !way.failed(); ++i) {
      const char* key = distag_value_get_key(given, i);
      T item = convert<T>::from(distag_value_get_item(given, i), way);
      if (way.failed()) way.within(std::string(".") + key);
      found.emplace(key, std::move(item));
    }
    return found;
  }
};

template <class... T>
struct convert<std::tuple<T...>> {
  static distag_value* to(const std::tuple<T...>& given, conversion& way) {
    return std::apply([&way](const T&... each) { return make(way, each...); }, given);
  }
  static std::tuple<T...> from(distag_value* given, conversion& way) {
    if (!detail::is_kind(given, value_kind::list, "list", way)) return {};
    if (distag_value_get_count(given) != sizeof...(T)) {
      way.fail(errc::invalid_argument, "a list of " + std::to_string(sizeof...(T)) + " items is wanted, one of " +
                                           std::to_string(distag_value_get_count(given)) + " came");
      return {};
    }
    return read(given, way, std::index_sequence_for<T...>());
  }

 private:
  static distag_value* make(conversion& way, const T&... each) {
    detail::items items(sizeof...(T));
    std::size_t index = 0;
    const bool well = (... && items.add(each, detail::step_of(index++), way));
    return well ? items.list(way) : nullptr;
  }
  template <std::size_t... I>
  static std::tuple<T...> read(distag_value* given, conversion& way, std::index_sequence<I...>) {
    return std::tuple<T...>{detail::from_item<T>(given, I, way)...};
  }
};
template <class A, class B>
struct convert<std::pair<A, B>> {
  static distag_value* to(const std::pair<A, B>& given, conversion& way) {
    return convert<std::tuple<A, B>>::to(std::tuple<A, B>(given.first, given.second), way);
  }
  static std::pair<A, B> from(distag_value* given, conversion& way) {
    auto found = convert<std::tuple<A, B>>::from(given, way);
    return {std::move(std::get<0>(found)), std::move(std::get<1>(found))};
  }
};

namespace detail {

// A lent value as a T; nothing for void.
template <class T>
T read(distag_value* given, outcome& err) {
  if constexpr (!std::is_void<T>::value) {
    outcome quiet(err.raw());
    conversion way(quiet);
    if (given == nullptr && quiet.failed()) return T();
    T found = convert<T>::from(given, way);
    if (!way.failed()) return found;
    way.finish();
    err.check(err.raw()->code);
    return T();
  }
}

}  // namespace detail

template <class T>
T value::as(outcome err) const {
  return detail::read<T>(get(), err);
}

// An argument of a call, which lives as long as the call. It lends tensors, values and rrefs, and makes other values.
class argument {
 public:
  template <class T, std::enable_if_t<detail::is_convertible<std::decay_t<T>>::value, int> = 0>
  argument(const T& given) {
    using type = std::decay_t<T>;
    if constexpr (detail::is_lent<type>::value) raw_ = convert<type>::lend(given);
    if (raw_ != nullptr) return;
    status failure;  // also that of an empty handle, for which lend() gives NULL
    outcome quiet(failure);
    conversion way(quiet);
    made_ = value(convert<type>::to(given, way));
    raw_ = made_.get();
    keep_failure(failure, way);
  }

  distag_value* get() const noexcept { return raw_; }
  const status* failure() const noexcept { return failure_.get(); }

 private:
  void keep_failure(status& failure, conversion& way) {
    if (!failure) return;
    way.within("");
    way.finish();
    failure_ = std::make_unique<status>(failure);
  }

  distag_value* raw_ = nullptr;
  value made_;
  std::unique_ptr<status> failure_;
};

// The arguments of a call: {x, 3, "text"}, or a std::vector<value>.
class arguments {
 public:
  arguments() noexcept = default;
  arguments(std::initializer_list<argument> items) noexcept : arguments(items.begin(), items.size()) {}
  arguments(const std::vector<value>& items) noexcept
      : values_(reinterpret_cast<distag_value* const*>(items.data())), count_(items.size()) {}

  // The handles as an array of C.
  class array {
   public:
    array(const arguments& given, outcome& err) : data_(given.values_), size_(given.count_) {
      if (given.items_ == nullptr) return;
      distag_value** filled = few_;
      if (size_ > kFew) {
        many_.resize(size_);
        filled = many_.data();
      }
      for (std::size_t i = 0; i < size_ && well_; ++i) {
        filled[i] = given.items_[i].get();
        if (const status* failure = given.items_[i].failure()) {
          const std::string path =
              "args" + detail::step_of(i) + (failure->message()[0] == '[' || failure->message()[0] == '.' ? "" : ": ");
          well_ = err.fail(failure->code(), path + failure->message());
        }
      }
      data_ = filled;
    }
    array(const array&) = delete;
    array& operator=(const array&) = delete;
    bool ok() const noexcept { return well_; }
    distag_value* const* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }

   private:
    static constexpr std::size_t kFew = 8;
    distag_value* few_[kFew];
    std::vector<distag_value*> many_;
    distag_value* const* data_;
    std::size_t size_;
    bool well_ = true;
  };

 private:
  arguments(const argument* items, std::size_t count) noexcept : items_(items), count_(count) {}

  const argument* items_ = nullptr;
  distag_value* const* values_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace distag

#endif
