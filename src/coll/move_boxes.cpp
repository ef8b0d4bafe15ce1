#include "coll/move_boxes.h"

#include <algorithm>
#include <utility>

#include "coll/boxes.h"

namespace distag {
namespace {

using layout::Box;
using layout::Transfer;
using Pieces = std::map<int64_t, Tensors>;  // by position

constexpr int64_t kLeastPiece = 1 << 20;

// From how many members a member takes pieces at once, at most.
int64_t givers_of(const layout::MeshShape& mesh, const layout::Move& move) {
  return move.move() == layout::MoveKind::kBoxes ? mesh.count() : mesh.size_of(move.move_axes());
}

// A box that is cut along its first dims into pieces, of which each is one row-major run of it.
class CutBox {
 public:
  CutBox(Box box, size_t item, int64_t members) : box_(std::move(box)) {
    const int64_t bytes = box_.count() * static_cast<int64_t>(item);
    const int64_t most = std::max({kMoveRound / members, kLeastPiece, bytes / kMostMovePieces});
    auto index_bytes = static_cast<int64_t>(item);  // bytes of one index of dim_
    for (dim_ = box_.extent.empty() ? 0 : box_.extent.size() - 1; dim_ > 0; --dim_) {
      if (index_bytes * box_.extent[dim_] > most) break;
      index_bytes *= box_.extent[dim_];
    }
    if (box_.extent.empty()) return;
    rows_ = std::max<int64_t>(1, most / std::max<int64_t>(index_bytes, 1));
    along_ = std::max<int64_t>(1, (box_.extent[dim_] - 1) / rows_ + 1);
    for (size_t d = 0; d < dim_; ++d) indexes_ *= box_.extent[d];
  }

  int64_t count() const { return along_ * indexes_; }
  Box piece(int64_t number) const {
    Box piece = box_;
    if (box_.extent.empty()) return piece;
    const int64_t begin = number % along_ * rows_;
    piece.offset[dim_] += begin;
    piece.extent[dim_] = std::min(rows_, box_.extent[dim_] - begin);
    int64_t index = number / along_;
    for (size_t d = dim_; d-- > 0; index /= box_.extent[d]) {
      piece.offset[d] += index % box_.extent[d];
      piece.extent[d] = 1;
    }
    return piece;
  }

 private:
  const Box box_;
  size_t dim_ = 0;  // is cut in rows; the dims before it have one index each
  int64_t rows_ = 1;
  int64_t along_ = 1;
  int64_t indexes_ = 1;
};

// A transfer as this member sees it.
struct Way {
  int64_t other;
  CutBox cut;
};

class Rounds : public std::enable_shared_from_this<Rounds> {
 public:
  Rounds(OpenCollective& open, uint32_t first, const layout::Move& move, const Dims& shape, Tensor shard,
         MeshStats& stats)
      : open_(open.shared_from_this()), first_(first), stats_(stats), shard_(std::move(shard)) {
    const layout::MeshShape& mesh = open.mesh->shape();
    const int64_t own = open.mesh->position();
    held_ = box_of(mesh, move.after_sum(), shape, own);
    target_ = box_of(mesh, move.to(), shape, own);
    const size_t item = dtype_size(shard_.dtype());
    const int64_t givers = givers_of(mesh, move);
    for (const Transfer& way : move.given_by(own)) given_.push_back({way.to, CutBox(way.box, item, givers)});
    for (const Transfer& way : move.taken_by(own)) taken_.push_back({way.from, CutBox(way.box, item, givers)});
    for (const Way& way : given_) rounds_ = std::max(rounds_, way.cut.count());
    for (const Way& way : taken_) rounds_ = std::max(rounds_, way.cut.count());
  }

  void begin_round() {
    size_t bytes = 0;
    for (const Way& way : given_) {
      if (round_ < way.cut.count()) bytes += bytes_of(way.cut.piece(round_));
    }
    open_->work(
        bytes, [self = shared_from_this()] { return self->outgoing(); },
        [self = shared_from_this()](Tensors pieces) { self->exchange(std::move(pieces)); });
  }

 private:
  size_t bytes_of(const Box& box) const { return static_cast<size_t>(box.count()) * dtype_size(shard_.dtype()); }

  Tensors outgoing() const {
    Tensors pieces;
    for (const Way& way : given_) {
      if (round_ < way.cut.count()) pieces.push_back(part_of(shard_, relative(way.cut.piece(round_), held_)));
    }
    return pieces;
  }

  void exchange(Tensors pieces) {
    Pieces outgoing;
    std::map<int64_t, std::vector<OpenCollective::Expected>> incoming;
    size_t next = 0;
    for (const Way& way : given_) {
      if (round_ < way.cut.count()) outgoing[way.other] = {std::move(pieces[next++])};
    }
    for (const Way& way : taken_) {
      if (round_ >= way.cut.count() || way.other == open_->mesh->position()) continue;
      incoming[way.other] = {{shard_.dtype(), way.cut.piece(round_).extent}};
    }
    add_words(outgoing, incoming);
    open_->exchange(first_ + static_cast<uint32_t>(round_), std::move(outgoing), std::move(incoming),
                    [self = shared_from_this()](Pieces came) { self->keep(std::move(came)); });
  }

  // A member that takes a piece after the first one, and gives none back in that round, reports that it has come so
  // far: so no member gives more than two rounds ahead of a late one.
  void add_words(Pieces& outgoing, std::map<int64_t, std::vector<OpenCollective::Expected>>& incoming) const {
    const auto is_after_first = [this](const Way& way) {
      return round_ > 0 && round_ < way.cut.count() && way.other != open_->mesh->position();
    };
    for (const Way& way : taken_) {
      if (is_after_first(way)) outgoing.try_emplace(way.other);
    }
    for (const Way& way : given_) {
      if (is_after_first(way)) incoming.try_emplace(way.other);
    }
  }

  void keep(Pieces came) {
    size_t bytes = 0;
    for (const Way& way : taken_) {
      if (round_ < way.cut.count()) bytes += bytes_of(way.cut.piece(round_));
    }
    open_->work(
        bytes,
        [self = shared_from_this(), came = std::move(came)] {
          self->write(came);
          return Tensors();
        },
        [self = shared_from_this()](const Tensors&) { self->end_round(); });
  }

  void write(const Pieces& came) {
    if (!result_) result_ = Tensor::empty(shard_.dtype(), target_.extent);
    for (const Way& way : taken_) {
      if (round_ >= way.cut.count()) continue;
      write_part(result_, relative(way.cut.piece(round_), target_).offset, came.at(way.other).front());
    }
  }

  void end_round() {
    stats_.bytes_held -= std::exchange(open_->bytes_held, 0);
    if (++round_ < rounds_) return begin_round();
    open_->complete(std::move(result_));
  }

  const std::shared_ptr<OpenCollective> open_;
  const uint32_t first_;
  MeshStats& stats_;  // the stats of the call's mesh
  const Tensor shard_;
  Box held_;
  Box target_;
  std::vector<Way> given_;
  std::vector<Way> taken_;
  Tensor result_;
  int64_t round_ = 0;
  int64_t rounds_ = 1;
};

}  // namespace

void move_boxes(OpenCollective& open, uint32_t first, const layout::Move& move, const Dims& shape, const Tensor& shard,
                MeshStats& stats) {
  std::make_shared<Rounds>(open, first, move, shape, shard, stats)->begin_round();
}

}  // namespace distag
