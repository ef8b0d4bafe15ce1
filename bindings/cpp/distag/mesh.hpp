// Meshes: workers as a grid with named axes, and tensors that lie over them.
#ifndef DISTAG_MESH_HPP
#define DISTAG_MESH_HPP

#include "worker.hpp"

namespace distag {

// See distag_mesh_options; a field that is empty or 0 has its default.
struct mesh_options {
  std::vector<std::int32_t> ranks{};  // of the members; empty: all of the group
  std::string name{};
  ints outer_shape{};                    // over granules: the mesh is hybrid, and its shape is that within one
  std::vector<std::int64_t> granules{};  // of each member; empty: the hosts
  distag::hidden_moves hidden_moves = distag::hidden_moves::allow;
  nanoseconds timeout{0};
  bool keep_gathered = false;
  bool check_replicas = false;
  std::uint64_t bucket_bytes = 0;
};

// The part of a tensor that a member holds, and its number among the members with the same part.
struct box {
  std::vector<std::int64_t> offset{}, extent{};
  std::int64_t replica = 0;
};

struct picture_options {
  picture_format format = picture_format::text;
  const char* label = nullptr;
  unsigned width = 0;
  bool color = false;
  unsigned row_dim = 0, column_dim = 0;
};

// See distag_collective_options. Positions count the members that take part.
struct collective_options {
  distag::reduction reduction = distag::reduction::sum;
  std::int64_t dim = 0, dim_to = 0, root = 0, shift = 1;
  nanoseconds timeout{0};
};

// Workers as a grid, row-major: its members. All make the same calls on it. A copy is the same mesh, on the same line.
// Axes of collectives are "data", "('x', 'y')", or nullptr for all.
class mesh : public detail::handle<distag_mesh, distag_mesh_retain, distag_mesh_release> {
 public:
  mesh() noexcept = default;
  explicit mesh(distag_mesh* owned) noexcept : handle(owned) {}
  static mesh retained(distag_mesh* lent) noexcept { return mesh(handle::retained(lent).release()); }

  // A shape without sizes is that of DISTAG_AUTO_SPMD_MESH. Collective over the members. Blocks until all have come.
  mesh(const worker& with, ints shape, const std::vector<std::string>& axes = {}, const mesh_options& options = {},
       outcome err = {}) {
    create(with.get(), shape, axes, options, err);
  }
  // A mesh without a worker serves for specs, boxes and pictures; without ranks it has those from 0 on.
  static mesh alone(ints shape, const std::vector<std::string>& axes = {}, mesh_options options = {},
                    outcome err = {}) {
    if (options.ranks.empty()) {
      std::int64_t count = 1;
      for (ints sizes : {shape, options.outer_shape}) {
        for (std::int64_t size : sizes) count = size > 0 && count <= most_members ? count * size : count;
      }
      for (std::int32_t rank = 0; rank < count && rank <= most_members; ++rank) options.ranks.push_back(rank);
    }
    mesh made;
    made.create(nullptr, shape, axes, options, err);
    return made;
  }

  std::string name(outcome err = {}) const { return text_of(info(err).name); }
  ints shape(outcome err = {}) const {  // lent by the mesh
    const distag_mesh_info found = info(err);
    return {found.shape, found.ndim};
  }
  std::vector<std::string> axis_names(outcome err = {}) const {
    const distag_mesh_info found = info(err);
    return {found.axis_names, found.axis_names + found.ndim};
  }
  std::vector<std::int32_t> ranks(outcome err = {}) const {
    const distag_mesh_info found = info(err);
    return {found.ranks, found.ranks + found.count};
  }
  ints granules(outcome err = {}) const {  // lent by the mesh
    const distag_mesh_info found = info(err);
    return {found.granules, static_cast<std::size_t>(found.count)};
  }
  std::int64_t size(outcome err = {}) const { return info(err).count; }
  std::int64_t position(outcome err = {}) const { return info(err).position; }  // -1 without a worker

  // Another line: the same members, with an order of calls of its own. Lines of the same name meet.
  mesh line(text name, outcome err = {}) const {
    mesh made;
    err.check(distag_mesh_open_line(get(), name.c_str(), made.put(), err.raw()));
    return made;
  }
  distag_mesh_stats stats(outcome err = {}) const {
    distag_mesh_stats found = DISTAG_MESH_STATS_INIT;
    err.check(distag_mesh_get_stats(get(), &found, err.raw()));
    return found;
  }
  std::string report(outcome err = {}) const {  // JSON
    return detail::copy_text(
        [raw = get()](char* buffer, std::size_t capacity, std::size_t* size, distag_error* error) {
          return distag_mesh_copy_report(raw, buffer, capacity, size, error);
        },
        err);
  }

  // The part of a tensor of this shape that the member at a position holds.
  distag::box box(text spec, ints shape, std::int64_t position, outcome err = {}) const {
    distag::box found;
    found.offset.resize(shape.size());
    found.extent.resize(shape.size());
    err.check(distag_mesh_copy_box(get(), spec.c_str(), shape.data(), shape.size(), position, found.offset.data(),
                                   found.extent.data(), &found.replica, err.raw()));
    return found;
  }
  // A spec for tensors of ndim dims in another form.
  std::string spec(text spec, std::size_t ndim, spec_form form = spec_form::tuple, outcome err = {}) const {
    return detail::copy_text(
        [&, raw = get()](char* buffer, std::size_t capacity, std::size_t* size, distag_error* error) {
          return distag_mesh_copy_spec(raw, spec.c_str(), ndim, static_cast<std::uint32_t>(form), buffer, capacity,
                                       size, error);
        },
        err);
  }

  // Makes a tensor sharded, in place, and returns it. source_rank -1: each member has all of it. Collective.
  tensor shard(const tensor& given, text spec, std::int32_t source_rank = -1, outcome err = {}) const {
    err.check(distag_tensor_mark_sharding(given.get(), get(), spec.c_str(), source_rank, err.raw()));
    return given;
  }
  tensor shard(const tensor& given, text spec, status& err) const { return shard(given, spec, -1, outcome(err)); }
  // A sharded tensor; `local` is the part of this member. Without a shape, it has the shape that the parts make up.
  tensor from_local(const tensor& local, text spec, ints shape = {}, const char* gradient_spec = nullptr,
                    outcome err = {}) const {
    tensor made;
    err.check(distag_tensor_from_local(get(), local.get(), spec.c_str(), shape.empty() ? nullptr : shape.data(),
                                       shape.size(), gradient_spec, made.put(), err.raw()));
    return made;
  }
  // A context that all members share: its backward pass is a pass of all of them. Collective.
  distag::context context(outcome err = {}) const {
    distag_context* made = nullptr;
    err.check(distag_context_create_joint(get(), &made, err.raw()));
    return {made, detail::worker_handle()};
  }

  // Collectives on plain tensors. They block.
  tensor all_reduce(const tensor& x, const char* axes = nullptr, const collective_options& options = {},
                    outcome err = {}) const {
    return collective(DISTAG_ALL_REDUCE, x, axes, options, err);
  }
  tensor all_gather(const tensor& x, const char* axes = nullptr, const collective_options& options = {},
                    outcome err = {}) const {
    return collective(DISTAG_ALL_GATHER, x, axes, options, err);
  }
  tensor reduce_scatter(const tensor& x, const char* axes = nullptr, const collective_options& options = {},
                        outcome err = {}) const {
    return collective(DISTAG_REDUCE_SCATTER, x, axes, options, err);
  }
  tensor all_to_all(const tensor& x, const char* axes = nullptr, const collective_options& options = {},
                    outcome err = {}) const {
    return collective(DISTAG_ALL_TO_ALL, x, axes, options, err);
  }
  tensor broadcast(const tensor& x, const char* axes = nullptr, const collective_options& options = {},
                   outcome err = {}) const {
    return collective(DISTAG_BROADCAST, x, axes, options, err);
  }
  // Empty on all members but the root.
  tensor reduce(const tensor& x, const char* axes = nullptr, const collective_options& options = {},
                outcome err = {}) const {
    return collective(DISTAG_REDUCE, x, axes, options, err);
  }
  tensor permute(const tensor& x, const char* axes = nullptr, const collective_options& options = {},
                 outcome err = {}) const {
    return collective(DISTAG_PERMUTE, x, axes, options, err);
  }
  // Any of these collectives as a future, whose value is the tensor, or null.
  future<value> collective_async(distag_collective_kind kind, const tensor& x, const char* axes = nullptr,
                                 const collective_options& options = {}, outcome err = {}) const {
    distag_future* made = nullptr;
    const distag_collective_options raw = raw_of(options);
    err.check(distag_collective_async(get(), kind, axes, x.get(), &raw, &made, err.raw()));
    return future<value>(made);
  }

 private:
  static constexpr std::int64_t most_members = 4096;

  void create(distag_worker* with, ints shape, const std::vector<std::string>& axes, const mesh_options& options,
              outcome& err) {
    std::vector<const char*> names;
    for (const std::string& axis : axes) names.push_back(axis.c_str());
    std::vector<std::int32_t> ranks = options.ranks;
    if (ranks.empty() && !options.granules.empty()) {
      // Ranks are named here: the library reads a granule for each rank that it finds, and more may have joined.
      ranks = detail::copy_ranks(
          [with](std::int32_t* found, std::size_t capacity, std::size_t* count, distag_error* error) {
            return distag_worker_copy_ranks(with, "", found, capacity, count, error);
          },
          err);
    }
    const bool fits = (names.empty() || names.size() == shape.size()) &&
                      (options.outer_shape.empty() || options.outer_shape.size() == shape.size()) &&
                      (options.granules.empty() || options.granules.size() == ranks.size());
    if (!fits) {
      err.fail(errc::invalid_argument,
               "a mesh has one name and one outer size for each axis, and one granule for each rank");
      return;
    }
    distag_mesh_options raw = DISTAG_MESH_OPTIONS_INIT;
    raw.hidden_moves = static_cast<std::uint32_t>(options.hidden_moves);
    raw.check_replicas = options.check_replicas ? 1 : 0;
    raw.keep_gathered = options.keep_gathered ? 1 : 0;
    raw.timeout_ns = options.timeout.count();
    raw.bucket_bytes = options.bucket_bytes;
    raw.name = options.name.empty() ? nullptr : options.name.c_str();
    raw.outer_shape = options.outer_shape.empty() ? nullptr : options.outer_shape.data();
    raw.granules = options.granules.empty() ? nullptr : options.granules.data();
    err.check(distag_mesh_create(with, ranks.empty() ? nullptr : ranks.data(), ranks.size(),
                                 shape.empty() ? nullptr : shape.data(), names.empty() ? nullptr : names.data(),
                                 shape.size(), &raw, put(), err.raw()));
  }
  distag_mesh_info info(outcome& err) const {
    distag_mesh_info found = DISTAG_MESH_INFO_INIT;
    err.check(distag_mesh_get_info(get(), &found, err.raw()));
    return found;
  }
  static std::string text_of(const char* given) { return given == nullptr ? "" : given; }
  static distag_collective_options raw_of(const collective_options& options) {
    distag_collective_options raw = DISTAG_COLLECTIVE_OPTIONS_INIT;
    raw.reduction = static_cast<std::uint32_t>(options.reduction);
    raw.dim = options.dim;
    raw.dim_to = options.dim_to;
    raw.root = options.root;
    raw.shift = options.shift;
    raw.timeout_ns = options.timeout.count();
    return raw;
  }
  tensor collective(distag_collective_kind kind, const tensor& x, const char* axes, const collective_options& options,
                    outcome& err) const {
    tensor made;
    const distag_collective_options raw = raw_of(options);
    err.check(distag_collective(get(), kind, axes, x.get(), &raw, made.put(), err.raw()));
    return made;
  }
};

inline mesh tensor::mesh() const noexcept { return distag::mesh::retained(distag_tensor_get_mesh(get())); }

// A tensor that has a dtype, a shape and no memory yet: `init` is full, rand or randn; see distag_deferred_options.
struct deferred_options {
  distag::init init = distag::init::full;
  std::uint64_t seed = 0;
  double scale = 1, shift = 0;
};
inline tensor deferred(ints shape, dtype type, const deferred_options& options = {}, outcome err = {}) {
  distag_deferred_options raw = DISTAG_DEFERRED_OPTIONS_INIT;
  raw.init = static_cast<std::uint32_t>(options.init);
  raw.shift = options.shift;
  if (options.init == init::rand || options.init == init::randn) {
    raw.seed = options.seed;
    raw.scale = options.scale;
  }
  tensor made;
  err.check(distag_tensor_create_deferred(static_cast<distag_dtype>(type), shape.data(), shape.size(), &raw, made.put(),
                                          err.raw()));
  return made;
}
namespace detail {

template <class T, class F>
struct box_source {
  F function;
  static distag_status call(void* user_data, const std::int64_t* offset, const std::int64_t* extent, std::size_t ndim,
                            void* buffer, std::size_t, distag_error* err) {
    return guarded(err, [&] {
      call_fallible(err, static_cast<box_source*>(user_data)->function, ints(offset, ndim), ints(extent, ndim),
                    static_cast<T*>(buffer));
    });
  }
};

}  // namespace detail
// A tensor whose elements function(ints offset, ints extent, T* elements) writes, box by box, each row-major.
template <class T, class F>
tensor deferred_from(ints shape, F function, outcome err = {}) {
  using source = detail::box_source<T, F>;
  distag_deferred_options raw = DISTAG_DEFERRED_OPTIONS_INIT;
  raw.init = DISTAG_INIT_SOURCE;
  raw.source = &source::call;
  raw.user_data = new source{std::move(function)};
  raw.destroy = detail::delete_as<source>;
  tensor made;
  err.check(distag_tensor_create_deferred(static_cast<distag_dtype>(detail::dtype_of<T>::value), shape.data(),
                                          shape.size(), &raw, made.put(), err.raw()));
  return made;
}

// Draws which members hold which part of a tensor. Without a mesh (an empty one) the spec is HLO text; without a shape
// all parts are drawn alike.
inline std::string visualize_sharding(const mesh& on, text spec, ints shape = {}, const picture_options& options = {},
                                      outcome err = {}) {
  distag_picture_options raw = DISTAG_PICTURE_OPTIONS_INIT;
  raw.format = static_cast<std::uint32_t>(options.format);
  raw.color = options.color ? 1 : 0;
  raw.width = options.width;
  raw.row_dim = options.row_dim;
  raw.column_dim = options.column_dim;
  raw.label = options.label;
  return detail::copy_text(
      [&](char* buffer, std::size_t capacity, std::size_t* size, distag_error* error) {
        return distag_visualize_sharding(on.get(), spec.c_str(), shape.empty() ? nullptr : shape.data(), shape.size(),
                                         &raw, buffer, capacity, size, error);
      },
      err);
}
inline std::string visualize_sharding(text spec, outcome err = {}) { return visualize_sharding({}, spec, {}, {}, err); }
inline std::string visualize_tensor_sharding(const tensor& given, const picture_options& options = {},
                                             outcome err = {}) {
  if (given.spec() == nullptr) {
    err.fail(errc::invalid_argument, "visualize_tensor_sharding: the tensor is not sharded: mark it first");
    return {};
  }
  return visualize_sharding(given.mesh(), given.spec(), given.shape(), options, err);
}

}  // namespace distag

#endif
