#include "coll/algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "coll/boxes.h"
#include "coll/move_boxes.h"
#include "layout/spec_text.h"
#include "layout/traffic.h"

namespace distag {
namespace {

using layout::block_of;
using layout::Box;
using layout::Range;
using Expected = OpenCollective::Expected;
using Pieces = std::map<int64_t, Tensors>;  // by position

const char* kind_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kPermute:
      return "permute";
    case CollectiveKind::kScatter:
      return "scatter";
  }
  return "unknown";
}

bool has_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kReduce;
}

bool has_dim(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllToAll;
}

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce || kind == CollectiveKind::kScatter;
}

// ---- parts of tensors ----

// A view of consecutive elements of a row-major tensor.
Tensor flat_part(const Tensor& x, Range range) { return x.view({range.extent}, {1}, x.offset() + range.offset); }

Box block_along(const Dims& shape, size_t dim, Range range) {
  Box box;
  box.offset.resize(shape.size());
  box.extent = shape;
  box.offset[dim] = range.offset;
  box.extent[dim] = range.extent;
  return box;
}

// Row-major copies of the blocks.
Tensors blocks_along(const Tensor& x, size_t dim, int64_t count) {
  Tensors blocks;
  for (int64_t i = 0; i < count; ++i) {
    blocks.push_back(part_of(x, block_along(x.shape(), dim, block_of(x.shape()[dim], count, i))));
  }
  return blocks;
}

size_t bytes_of(const Pieces& pieces) {
  size_t bytes = 0;
  for (const auto& [position, tensors] : pieces) bytes += tensors.front().byte_size();
  return bytes;
}

// Calls `then` with the only tensor.
UniqueFunction<void(Tensors)> first_to(UniqueFunction<void(Tensor)> then) {
  return [then = std::move(then)](Tensors made) mutable { then(std::move(made.front())); };
}

// Makes a tensor of these pieces, on the executor if they are large.
template <typename Make>
void put_together(OpenCollective& open, Pieces pieces, Make make, UniqueFunction<void(Tensor)> then) {
  const size_t bytes = bytes_of(pieces);  // before they are moved
  open.work(
      bytes, [pieces = std::move(pieces), make = std::move(make)] { return Tensors{make(pieces)}; },
      first_to(std::move(then)));
}

// ---- steps ----

// The members that take part, in the order of their index along the axes.
struct AxisGroup {
  const layout::MeshShape& mesh;
  std::vector<int64_t> members;
  int64_t own;  // index among them

  AxisGroup(const Mesh& of, const layout::Axes& axes)
      : mesh(of.shape()),
        members(of.shape().group_of(axes, of.position())),
        own(of.shape().index_along(axes, of.position())) {}
  int64_t count() const { return static_cast<int64_t>(members.size()); }
  int64_t operator[](int64_t index) const { return members[static_cast<size_t>(index)]; }
};

std::vector<Operand> operands_of(const AxisGroup& group, Pieces& pieces) {
  std::vector<Operand> operands;
  for (auto& [position, tensors] : pieces) {
    operands.push_back({group.mesh.granules()[static_cast<size_t>(position)], position, std::move(tensors.front())});
  }
  return operands;
}

// Sends the tensor of this member to all; calls `then` with the tensors of all.
void gather(OpenCollective& open, uint32_t part, const AxisGroup& group, const Tensor& x,
            const std::function<Expected(int64_t index)>& expected, UniqueFunction<void(Pieces)> then) {
  Pieces outgoing;
  std::map<int64_t, std::vector<Expected>> incoming;
  for (int64_t i = 0; i < group.count(); ++i) {
    outgoing[group[i]] = {x};
    if (i != group.own) incoming[group[i]] = {expected(i)};
  }
  open.exchange(part, std::move(outgoing), std::move(incoming), std::move(then));
}

// Member i gets piece i of each; calls `then` with the reduction of what this member gets.
void scatter_reduce(OpenCollective& open, uint32_t part, const AxisGroup& group, const Tensors& pieces,
                    Reduction reduction, UniqueFunction<void(Tensor)> then) {
  const Tensor& mine = pieces[static_cast<size_t>(group.own)];
  Pieces outgoing;
  std::map<int64_t, std::vector<Expected>> incoming;
  for (int64_t i = 0; i < group.count(); ++i) {
    outgoing[group[i]] = {pieces[static_cast<size_t>(i)]};
    if (i != group.own) incoming[group[i]] = {{mine.dtype(), mine.shape()}};
  }
  open.exchange(part, std::move(outgoing), std::move(incoming),
                [self = open.shared_from_this(), group, reduction, then = std::move(then)](Pieces came) mutable {
                  self->reduce(reduction, operands_of(group, came), std::move(then));
                });
}

Tensors chunks_of(const Tensor& x, int64_t count) {
  Tensors chunks;
  for (int64_t i = 0; i < count; ++i) chunks.push_back(flat_part(x, block_of(x.count(), count, i)));
  return chunks;
}

// Gathers the whole from chunk i of member i, as a tensor of that shape.
void gather_chunks(OpenCollective& open, uint32_t part, const AxisGroup& group, const Tensor& chunk, const Dims& shape,
                   UniqueFunction<void(Tensor)> then) {
  const int64_t size = element_count(shape);
  auto expected = [&](int64_t i) { return Expected{chunk.dtype(), {block_of(size, group.count(), i).extent}}; };
  gather(open, part, group, chunk, expected,
         [self = open.shared_from_this(), group, shape, size, then = std::move(then)](Pieces came) mutable {
           put_together(
               *self, std::move(came),
               [group, shape, size](const Pieces& chunks) {
                 Tensor whole = Tensor::empty(chunks.begin()->second.front().dtype(), {size});
                 for (int64_t i = 0; i < group.count(); ++i) {
                   write_part(whole, {block_of(size, group.count(), i).offset}, chunks.at(group[i]).front());
                 }
                 return whole.view(shape, row_major_strides(shape), 0);
               },
               std::move(then));
         });
}

// Uses the parts `part` and `part + 1`.
void all_reduce(OpenCollective& open, uint32_t part, const AxisGroup& group, const Tensor& x, Reduction reduction,
                UniqueFunction<void(Tensor)> then) {
  if (layout::is_reduced_directly(group.count(), static_cast<int64_t>(x.byte_size()))) {
    auto same = [&x](int64_t) { return Expected{x.dtype(), x.shape()}; };
    gather(open, part, group, x, same,
           [self = open.shared_from_this(), group, reduction, then = std::move(then)](Pieces came) mutable {
             self->reduce(reduction, operands_of(group, came), std::move(then));
           });
    return;
  }
  scatter_reduce(open, part, group, chunks_of(x, group.count()), reduction,
                 [self = open.shared_from_this(), part, group, shape = x.shape(), then = std::move(then)](
                     Tensor chunk) mutable { gather_chunks(*self, part + 1, group, chunk, shape, std::move(then)); });
}

// The pieces one after the other along the dim, in the order of the group.
Tensor concatenated(const AxisGroup& group, const Pieces& pieces, size_t dim) {
  const Tensor& first = pieces.at(group[0]).front();
  Dims shape = first.shape();
  shape[dim] = 0;
  for (const auto& [position, tensors] : pieces) shape[dim] += tensors.front().shape()[dim];
  Tensor whole = Tensor::empty(first.dtype(), shape);
  Dims offset;
  offset.resize(shape.size());
  for (int64_t i = 0; i < group.count(); ++i) {
    const Tensor& piece = pieces.at(group[i]).front();
    write_part(whole, offset, piece);
    offset[dim] += piece.shape()[dim];
  }
  return whole;
}

// ---- collectives ----

UniqueFunction<void(Tensor)> completing(OpenCollective& open) {
  return [self = open.shared_from_this()](Tensor result) { self->complete(std::move(result)); };
}

// Completes the call with the concatenated pieces.
void concatenate(OpenCollective& open, const AxisGroup& group, Pieces pieces, size_t dim) {
  put_together(
      open, std::move(pieces), [group, dim](const Pieces& parts) { return concatenated(group, parts, dim); },
      completing(open));
}

size_t dim_of(int64_t dim, const Tensor& x) {
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(x.rank()) : dim);
}

void run_all_gather(OpenCollective& open, const AxisGroup& group, const CollectiveCall& call) {
  const Tensor& x = call.tensor;
  const size_t dim = dim_of(call.dim, x);
  auto expected = [&](int64_t) { return Expected{x.dtype(), x.shape(), dim}; };
  gather(open, 0, group, x, expected, [self = open.shared_from_this(), group, dim](Pieces came) {
    concatenate(*self, group, std::move(came), dim);
  });
}

void run_reduce_scatter(OpenCollective& open, const AxisGroup& group, const CollectiveCall& call) {
  const Tensor& x = call.tensor;
  const size_t dim = dim_of(call.dim, x);
  open.work(
      x.byte_size(), [x, dim, count = group.count()] { return blocks_along(x, dim, count); },
      [self = open.shared_from_this(), group, reduction = call.reduction](Tensors blocks) {
        scatter_reduce(*self, 0, group, blocks, reduction, completing(*self));
      });
}

// Block i goes to member i; the blocks that come, each of that shape, are concatenated along `dim`.
void exchange_blocks(OpenCollective& open, const AxisGroup& group, const Tensors& blocks, const Dims& shape,
                     size_t dim) {
  Pieces outgoing;
  std::map<int64_t, std::vector<Expected>> incoming;
  for (int64_t i = 0; i < group.count(); ++i) {
    outgoing[group[i]] = {blocks[static_cast<size_t>(i)]};
    if (i != group.own) incoming[group[i]] = {{blocks.front().dtype(), shape}};
  }
  open.exchange(0, std::move(outgoing), std::move(incoming), [self = open.shared_from_this(), group, dim](Pieces came) {
    concatenate(*self, group, std::move(came), dim);
  });
}

void run_all_to_all(OpenCollective& open, const AxisGroup& group, const CollectiveCall& call) {
  const Tensor& x = call.tensor;
  const size_t dim = dim_of(call.dim, x);
  Dims shape = x.shape();
  shape[dim] = block_of(x.shape()[dim], group.count(), group.own).extent;
  open.work(
      x.byte_size(), [x, dim, count = group.count()] { return blocks_along(x, dim, count); },
      [self = open.shared_from_this(), group, shape, to = dim_of(call.dim_to, x)](Tensors blocks) {
        exchange_blocks(*self, group, blocks, shape, to);
      });
}

void run_broadcast(OpenCollective& open, const AxisGroup& group, const CollectiveCall& call) {
  const Tensor& x = call.tensor;
  const bool is_root = group.own == call.root;
  const bool is_direct = static_cast<int64_t>(x.byte_size()) <= Mesh::kMostDirectBroadcast;
  const Tensors chunks = is_direct ? Tensors() : chunks_of(x, group.count());
  const Dims shape = is_direct ? x.shape() : chunks[static_cast<size_t>(group.own)].shape();
  Pieces outgoing;
  std::map<int64_t, std::vector<Expected>> incoming;
  for (int64_t i = 0; is_root && i < group.count(); ++i) {
    outgoing[group[i]] = {is_direct ? x : chunks[static_cast<size_t>(i)]};
  }
  if (!is_root) incoming[group[call.root]] = {{x.dtype(), shape}};
  open.exchange(0, std::move(outgoing), std::move(incoming),
                [self = open.shared_from_this(), group, is_direct, shape = x.shape(), root = call.root](Pieces came) {
                  const Tensor& piece = came.at(group[root]).front();
                  if (is_direct) return self->complete(piece);
                  gather_chunks(*self, 1, group, piece, shape, completing(*self));
                });
}

// Sends to the root alone: whole operands, or chunks that the members have reduced.
void run_reduce(OpenCollective& open, const AxisGroup& group, const CollectiveCall& call) {
  const Tensor& x = call.tensor;
  const bool is_root = group.own == call.root;
  if (layout::is_reduced_directly(group.count(), static_cast<int64_t>(x.byte_size()))) {
    std::map<int64_t, std::vector<Expected>> incoming;
    for (int64_t i = 0; is_root && i < group.count(); ++i) {
      if (i != group.own) incoming[group[i]] = {{x.dtype(), x.shape()}};
    }
    open.exchange(0, {{group[call.root], {x}}}, std::move(incoming),
                  [self = open.shared_from_this(), group, is_root, reduction = call.reduction](Pieces came) {
                    if (!is_root) return self->complete(Tensor());
                    self->reduce(reduction, operands_of(group, came), completing(*self));
                  });
    return;
  }
  scatter_reduce(open, 0, group, chunks_of(x, group.count()), call.reduction,
                 [self = open.shared_from_this(), group, is_root, shape = x.shape(), root = call.root](Tensor chunk) {
                   const int64_t size = element_count(shape);
                   std::map<int64_t, std::vector<Expected>> incoming;
                   for (int64_t i = 0; is_root && i < group.count(); ++i) {
                     if (i != group.own)
                       incoming[group[i]] = {{chunk.dtype(), {block_of(size, group.count(), i).extent}}};
                   }
                   self->exchange(1, {{group[root], {chunk}}}, std::move(incoming),
                                  [self, group, is_root, shape](Pieces came) {
                                    if (!is_root) return self->complete(Tensor());
                                    put_together(
                                        *self, std::move(came),
                                        [group, shape](const Pieces& chunks) {
                                          const Tensor whole = concatenated(group, chunks, 0);
                                          return whole.view(shape, row_major_strides(shape), 0);
                                        },
                                        completing(*self));
                                  });
                 });
}

void run_permute(OpenCollective& open, const AxisGroup& group, const CollectiveCall& call) {
  const int64_t count = group.count();
  const int64_t shift = (call.shift % count + count) % count;
  const int64_t to = (group.own + shift) % count;
  const int64_t from = (group.own + count - shift) % count;
  std::map<int64_t, std::vector<Expected>> incoming;
  if (from != group.own) incoming[group[from]] = {{call.tensor.dtype(), call.tensor.shape()}};
  open.exchange(
      0, {{group[to], {call.tensor}}}, std::move(incoming),
      [self = open.shared_from_this(), from = group[from]](Pieces came) { self->complete(came.at(from).front()); });
}

void run_scatter(OpenCollective& open, const AxisGroup& group, const CollectiveCall& call) {
  Pieces outgoing;
  std::map<int64_t, std::vector<Expected>> incoming;
  const bool is_root = group.own == call.root;
  for (int64_t i = 0; is_root && i < group.count(); ++i) outgoing[group[i]] = {call.pieces[static_cast<size_t>(i)]};
  if (!is_root) incoming[group[call.root]] = {{call.tensor.dtype(), call.tensor.shape()}};
  open.exchange(0, std::move(outgoing), std::move(incoming),
                [self = open.shared_from_this(), root = group[call.root]](Pieces came) {
                  self->complete(came.at(root).front());
                });
}

void count(MeshStats& stats, CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      ++stats.all_reduces;
      break;
    case CollectiveKind::kAllGather:
      ++stats.all_gathers;
      break;
    case CollectiveKind::kReduceScatter:
      ++stats.reduce_scatters;
      break;
    case CollectiveKind::kAllToAll:
      ++stats.all_to_alls;
      break;
    case CollectiveKind::kBroadcast:
      ++stats.broadcasts;
      break;
    case CollectiveKind::kReduce:
    case CollectiveKind::kPermute:
    case CollectiveKind::kScatter:
      ++stats.moves;
      break;
  }
}

// ---- moves of sharded tensors ----

constexpr uint32_t kMovePart = 2;  // the first one, after those of a sum

void count(MeshStats& stats, const layout::Move& move) {
  stats.all_reduces += move.sum() == layout::SumKind::kAllReduce;
  stats.reduce_scatters += move.sum() == layout::SumKind::kReduceScatter;
  stats.all_gathers += move.move() == layout::MoveKind::kAllGather;
  stats.all_to_alls += move.move() == layout::MoveKind::kAllToAll;
  stats.moves += move.move() == layout::MoveKind::kBoxes;
}

const char* kind_name(const layout::Move& move) {
  if (move.sum() == layout::SumKind::kAllReduce) return "all_reduce";
  if (move.sum() == layout::SumKind::kReduceScatter) return "reduce_scatter";
  if (move.move() == layout::MoveKind::kAllGather) return "all_gather";
  return move.move() == layout::MoveKind::kAllToAll ? "all_to_all" : "move";
}

MeshSnapshot::Move describe_move(const OpenCollective& open, const layout::Move& move) {
  const layout::MeshShape& mesh = open.mesh->shape();
  return {open.text,
          print_spec(mesh, move.from()) + " -> " + print_spec(mesh, move.to()),
          kind_name(move),
          names_of(mesh, move.sum() == layout::SumKind::kNothing ? move.move_axes() : move.sum_axes()),
          0,
          "redistribute"};
}

}  // namespace

void check_collective(const layout::MeshShape& mesh, const CollectiveCall& call) {
  const char* name = kind_name(call.kind);
  const Tensor& x = call.tensor;
  if (!x) fail(Status::kInvalidArgument, "{}: a tensor is missing", name);
  const auto rank = static_cast<int64_t>(x.rank());
  for (const int64_t dim : {call.dim, call.kind == CollectiveKind::kAllToAll ? call.dim_to : call.dim}) {
    if (!has_dim(call.kind) || (dim >= -rank && dim < rank)) continue;
    fail(Status::kInvalidArgument, "{}: dim {} is out of range for {}", name, dim, describe(x));
  }
  const int64_t members = mesh.size_of(call.axes);
  if (has_root(call.kind) && (call.root < 0 || call.root >= members)) {
    fail(Status::kInvalidArgument, "{}: root {} is not among the {} members: give a position from 0 on", name,
         call.root, members);
  }
  if (has_reduction(call.kind) && std::string_view(reduction_name(call.reduction)) == "unknown") {
    fail(Status::kInvalidArgument, "{}: {} is no reduction: use sum, product, min or max", name,
         static_cast<int32_t>(call.reduction));
  }
}

// Numbers that are 0, as they are by default, are left out.
std::string describe(const layout::MeshShape& mesh, const CollectiveCall& call) {
  std::string text = fmt::format("{}({}", kind_name(call.kind), describe(call.tensor));
  const auto add = [&text](const char* name, int64_t number) {
    if (number != 0) text += fmt::format(", {} {}", name, number);
  };
  if (has_reduction(call.kind)) text += fmt::format(", {}", reduction_name(call.reduction));
  if (has_dim(call.kind)) add("dim", call.dim);
  if (call.kind == CollectiveKind::kAllToAll) add("dim_to", call.dim_to);
  if (has_root(call.kind)) add("root", call.root);
  if (call.kind == CollectiveKind::kPermute) add("shift", call.shift);
  return text + fmt::format(", axes {})", names_of(mesh, call.axes));
}

uint64_t fingerprint_of(const CollectiveCall& call) {
  Fingerprint fingerprint;
  fingerprint.add(static_cast<uint64_t>(call.kind)).add(static_cast<uint64_t>(call.tensor.dtype()));
  fingerprint.add(call.tensor.rank()).add(call.axes.size());
  const size_t open_dim = call.kind == CollectiveKind::kAllGather ? dim_of(call.dim, call.tensor) : size_t{kMaxRank};
  for (size_t i = 0; i < call.tensor.rank(); ++i) {
    fingerprint.add(i == open_dim || call.sizes_differ ? UINT64_MAX : static_cast<uint64_t>(call.tensor.shape()[i]));
  }
  for (uint8_t axis : call.axes) fingerprint.add(axis);
  fingerprint.add(static_cast<uint64_t>(call.reduction)).add(static_cast<uint64_t>(call.dim));
  fingerprint.add(static_cast<uint64_t>(call.dim_to)).add(static_cast<uint64_t>(call.root));
  return fingerprint.add(static_cast<uint64_t>(call.shift)).value();
}

void run_collective(OpenCollective& open, const CollectiveCall& call, MeshStats& stats) {
  const AxisGroup group(*open.mesh, call.axes);
  if (group.count() > 1 && open.is_counted) {
    count(stats, call.kind);
    open.move.emplace(
        MeshSnapshot::Move{open.text, "", kind_name(call.kind), names_of(open.mesh->shape(), call.axes), 0, "called"});
  }
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce(open, 0, group, call.tensor, call.reduction, completing(open));
    case CollectiveKind::kAllGather:
      return run_all_gather(open, group, call);
    case CollectiveKind::kReduceScatter:
      return run_reduce_scatter(open, group, call);
    case CollectiveKind::kAllToAll:
      return run_all_to_all(open, group, call);
    case CollectiveKind::kBroadcast:
      return run_broadcast(open, group, call);
    case CollectiveKind::kReduce:
      return run_reduce(open, group, call);
    case CollectiveKind::kPermute:
      return run_permute(open, group, call);
    case CollectiveKind::kScatter:
      return run_scatter(open, group, call);
  }
}

void run_move(OpenCollective& open, const layout::Move& move, const Dims& shape, const Tensor& shard,
              MeshStats& stats) {
  if (move.is_identity()) return open.complete(shard);
  count(stats, move);
  open.move.emplace(describe_move(open, move));
  auto go_on = [self = open.shared_from_this(), move, shape, &stats](Tensor summed) {
    move_boxes(*self, kMovePart, move, shape, summed, stats);
  };
  if (move.sum() == layout::SumKind::kNothing) return go_on(shard);
  const AxisGroup group(*open.mesh, move.sum_axes());
  if (move.sum() == layout::SumKind::kAllReduce) {
    return all_reduce(open, 0, group, shard, Reduction::kSum, std::move(go_on));
  }
  const Box held = box_of(open.mesh->shape(), move.from(), shape, open.mesh->position());
  open.work(
      shard.byte_size(),
      [self = open.shared_from_this(), group, move, shape, shard, held] {
        Tensors pieces;
        for (const int64_t member : group.members) {
          const Box box = box_of(self->mesh->shape(), move.after_sum(), shape, member);
          pieces.push_back(part_of(shard, relative(box, held)));
        }
        return pieces;
      },
      [self = open.shared_from_this(), group, go_on = std::move(go_on)](Tensors pieces) mutable {
        scatter_reduce(*self, 0, group, pieces, Reduction::kSum, std::move(go_on));
      });
}

}  // namespace distag
