// Loaders: batches that a source makes ahead of the program, as sharded tensors.
#ifndef DISTAG_LOADER_HPP
#define DISTAG_LOADER_HPP

#include <cstddef>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "mesh.hpp"

namespace distag {

// See distag_loader_options. `specs` are for the entries of a map, by key; `spec` is for any tensor.
struct loader_options {
  batch_mode mode = batch_mode::global;
  std::uint32_t prefetch = 0, concurrency = 0;
  std::string spec;
  std::vector<std::pair<std::string, std::string>> specs;
  std::int64_t row_count = 0, batch_rows = 0, epochs = 0;  // these, up to drop_last: for rows only
  std::uint64_t seed = 0;
  bool shuffle = false, drop_last = false;
  value state;  // from loader::state()
};

namespace detail {

template <class F>
struct batch_source {
  F function;
  static distag_status call(void* user_data, std::uint64_t number, const std::int64_t* rows, std::size_t row_count,
                            distag_value** out_batch, distag_error* err) {
    return guarded(err, [&] {
      value made = call_fallible(err, static_cast<batch_source*>(user_data)->function, number, ints(rows, row_count));
      *out_batch = made.release();
    });
  }
};

}  // namespace detail

// Batches of a mesh, one after the other: `for (const value& batch : loader(mesh, source, options))`. Thread-safe.
class loader : public detail::handle<distag_loader, distag_loader_retain, distag_loader_release> {
 public:
  loader() noexcept = default;
  // source(number, rows) returns a value: a tensor, or a list or map of tensors; an empty value at the end. `rows` is
  // empty except with batch_mode::rows. Collective.
  template <class F>
  loader(const mesh& on, F source, const loader_options& options = {}, outcome err = {}) {
    using kept = detail::batch_source<F>;
    std::vector<const char*> keys, specs;
    for (const auto& [key, spec] : options.specs) {
      keys.push_back(key.c_str());
      specs.push_back(spec.c_str());
    }
    if (options.specs.empty() && !options.spec.empty()) specs.push_back(options.spec.c_str());
    distag_loader_options raw = DISTAG_LOADER_OPTIONS_INIT;
    raw.mode = static_cast<std::uint32_t>(options.mode);
    raw.prefetch = options.prefetch;
    raw.concurrency = options.concurrency;
    raw.keys = keys.empty() ? nullptr : keys.data();
    raw.specs = specs.empty() ? nullptr : specs.data();
    raw.spec_count = specs.size();
    raw.row_count = options.row_count;
    raw.batch_rows = options.batch_rows;
    raw.epochs = options.epochs;
    raw.seed = options.seed;
    raw.shuffle = options.shuffle ? 1 : 0;
    raw.drop_last = options.drop_last ? 1 : 0;
    raw.state = options.state.get();
    err.check(distag_loader_create(on.get(), &kept::call, new kept{std::move(source)}, detail::delete_as<kept>, &raw,
                                   put(), err.raw()));
  }

  // The next batch; empty at the end. After DEADLINE it is still to come. Blocks.
  value next(nanoseconds timeout = forever, outcome err = {}) const {
    value batch;
    err.check(distag_loader_next(get(), timeout.count(), batch.put(), err.raw()));
    return batch;
  }
  value next(status& err) const { return next(forever, outcome(err)); }
  future<> next_async(nanoseconds timeout = forever, outcome err = {}) const {
    distag_future* made = nullptr;
    err.check(distag_loader_next_async(get(), timeout.count(), &made, err.raw()));
    return future<>(made);
  }
  // The position, to be saved in a checkpoint: a loader made with it, on any mesh, begins with the next batch.
  value state(outcome err = {}) const {
    value made;
    err.check(distag_loader_save(get(), made.put(), err.raw()));
    return made;
  }
  distag_loader_info info(outcome err = {}) const {
    distag_loader_info found = DISTAG_LOADER_INFO_INIT;
    err.check(distag_loader_get_info(get(), &found, err.raw()));
    return found;
  }

  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = value;
    using difference_type = std::ptrdiff_t;
    using pointer = const value*;
    using reference = const value&;
    iterator() noexcept = default;
    explicit iterator(const loader& from) : from_(&from), batch_(from.next()) {}
    reference operator*() const noexcept { return batch_; }
    pointer operator->() const noexcept { return &batch_; }
    iterator& operator++() {
      batch_ = from_->next();
      return *this;
    }
    // Ends are equal.
    bool operator==(const iterator& other) const noexcept { return !batch_ && !other.batch_; }
    bool operator!=(const iterator& other) const noexcept { return !(*this == other); }

   private:
    const loader* from_ = nullptr;
    value batch_;
  };
  iterator begin() const { return iterator(*this); }
  iterator end() const noexcept { return {}; }
};

}  // namespace distag

#endif
