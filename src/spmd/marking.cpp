#include "spmd/marking.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "layout/spec_text.h"
#include "spmd/agreement.h"
#include "spmd/sharding.h"
#include "tensor/deferred.h"
#include "tensor/shape_only.h"

namespace distag::spmd {
namespace {

using layout::Box;
using layout::MeshShape;
using layout::Spec;

constexpr int64_t kMostTogether = (int64_t{64} << 20) / 8;  // words of one exchange
constexpr int64_t kWord = 8;

Tensor part_of(const Tensor& whole, const Box& box) {
  int64_t offset = whole.offset();
  for (size_t d = 0; !box.empty() && d < whole.rank(); ++d) offset += box.offset[d] * whole.strides()[d];
  return whole.view(box.extent, whole.strides(), offset).clone();
}

// This member's part. With source -1 a deferred tensor makes no more than that; it has an `initialiser`.
Tensor make_part(const Tensor& tensor, const Initialiser* initialiser, const Box& box, CallOnLine& call,
                 int64_t source) {
  if (source < 0 && initialiser != nullptr) return make_box(*initialiser, tensor.dtype(), box.offset, box.extent);
  if (source < 0) return part_of(tensor.hold(), box);
  // Members other than the source give dtype and shape only, so a deferred tensor is not made there.
  const bool is_spared = initialiser != nullptr && source != call.line().program->position();
  return part_of(call.broadcast(is_spared ? Tensor::empty(tensor.dtype(), tensor.shape()) : tensor.hold(), source),
                 box);
}

// Fails alike on all members.
Spec check_marking(const Tensor& tensor, const Line& line, const std::string& text, int64_t source) {
  check_not_shape_only(tensor);
  const MeshShape& mesh = line.program->shape();
  Spec parsed = parse_spec(mesh, text, tensor.rank());
  check_shape(mesh, parsed, tensor.shape(), dtype_size(tensor.dtype()));
  if (mesh.used(parsed.partial()) != 0) {
    fail(Status::kInvalidArgument, "mark_sharding: {} is a sum, which only from_local can make", text);
  }
  if (autograd::has_history(tensor)) {
    fail(Status::kInvalidState, "mark_sharding: {} has a history: give a leaf, or detach it", describe(tensor));
  }
  if (source < -1 || source >= mesh.count()) {
    fail(Status::kInvalidArgument,
         "mark_sharding: the source is not among the {} members of mesh \"{}\": give one of its ranks, or -1",
         mesh.count(), mesh.name());
  }
  if (const Sharding* there = Sharding::of(tensor)) {
    const bool is_same = &there->program() == line.program.get() && places_alike(mesh, there->lying().spec, parsed);
    if (!is_same) {
      fail(Status::kInvalidState, "mark_sharding: {} is sharded as {} already: redistribute gives another",
           describe(tensor), there->describe());
    }
  }
  return parsed;
}

// Elements of plain tensors on their way from one member, one after the other, each aligned to a word.
class Parcel {
 public:
  bool has_room(const Tensor& tensor) const { return words_ == 0 || words_ + words_of(tensor) <= kMostTogether; }
  void add(size_t leaf, const Tensor& tensor) {
    leaves_.emplace_back(leaf, tensor);
    words_ += words_of(tensor);
  }
  bool empty() const { return leaves_.empty(); }

  // Calls take(leaf, all its elements) for each leaf.
  template <typename Take>
  void send(CallOnLine& call, int64_t source, const Take& take) {
    Tensor packed = Tensor::empty(Dtype::kInt64, {words_});
    auto* words = packed.mutable_data_as<int64_t>();
    const bool is_source = source == call.line().program->position();
    int64_t at = 0;
    for (const auto& [leaf, tensor] : leaves_) {
      if (is_source && tensor.count() > 0) {
        const Tensor held = tensor.hold().contiguous();
        std::memcpy(words + at, held.data(), held.byte_size());
      }
      at += words_of(tensor);
    }
    if (words_ > 0) packed = call.broadcast(packed, source);
    const auto* sent = packed.data_as<int64_t>();
    for (const auto& [leaf, tensor] : leaves_) {
      Tensor whole = Tensor::empty(tensor.dtype(), tensor.shape());
      if (whole.count() > 0) std::memcpy(whole.mutable_data(), sent, whole.byte_size());
      sent += words_of(tensor);
      take(leaf, whole);
    }
    leaves_.clear();
    words_ = 0;
  }

 private:
  static int64_t words_of(const Tensor& tensor) {
    return (static_cast<int64_t>(tensor.byte_size()) + kWord - 1) / kWord;
  }

  std::vector<std::pair<size_t, Tensor>> leaves_;
  int64_t words_ = 0;
};

// A call that marks several leaves.
class Marker {
 public:
  Marker(const std::vector<Marking>& markings, const Line& line, int64_t source, bool together)
      : markings_(markings), source_(source), together_(together), call_(line, "plan_apply") {
    for (const Marking& marking : markings_) {
      initialisers_.push_back(marking.tensor.initialiser());
      is_marked_.push_back(Sharding::of(marking.tensor) != nullptr);
    }
  }

  void run(const std::string& what) {
    check(what);
    note(what);
    // A member may fail alone in making its own parts: then all members throw that, and none has marked anything.
    const Outcomes outcomes = agree(call_, 0, [this] {
      make_own();
      return std::vector<int64_t>();
    });
    if (outcomes.failure) throw *outcomes.failure;
    bool is_first = true;
    try {
      fetch();
      for (size_t i = 0; i < markings_.size(); ++i) {
        if (shards_[i]) is_first = mark(i) && is_first;
      }
    } catch (...) {
      // Other members have sharded the leaves, which this one cannot.
      call_.end_mesh(current_error());
      throw;
    }
    if (!is_first) fail(Status::kInvalidState, "{}: a leaf is sharded by another thread", what);
  }

 private:
  const Line& line() const { return call_.line(); }

  void check(const std::string& what) {
    try {
      for (const Marking& marking : markings_) {
        try {
          specs_.push_back(check_marking(marking.tensor, line(), marking.spec, source_));
        } catch (...) {
          throw current_error().add_context(fmt::format("leaf \"{}\"", marking.name));
        }
      }
    } catch (const Error& error) {
      call_.note_failure(what, error);
      throw;
    }
  }

  void note(const std::string& what) {
    Fingerprint fingerprint;
    fingerprint.add(what).add(together_ ? 1 : 0);
    std::vector<Tensor> replicas;
    for (size_t i = 0; i < markings_.size(); ++i) {
      const Tensor& tensor = markings_[i].tensor;
      const bool is_deferred = initialisers_[i] != nullptr;
      fingerprint.add(autograd::requires_grad(tensor) ? 1 : 0).add(is_deferred ? 1 : 0);
      fingerprint.add(is_marked_[i] ? 1 : 0);
      if (source_ < 0 && !is_deferred && !is_marked_[i]) replicas.push_back(tensor);
    }
    const std::string text = what + line().program->describe_replicas(replicas);
    call_.note(text, fingerprint.add(text).value());
  }

  Box box(size_t leaf) const {
    return box_of(line().program->shape(), specs_[leaf], markings_[leaf].tensor.shape(), line().program->position());
  }

  bool is_sent(size_t leaf) const { return source_ >= 0 && initialisers_[leaf] == nullptr; }

  // Makes the parts for which no values are sent: of deferred leaves, and of all leaves with source -1.
  void make_own() {
    shards_.resize(markings_.size());
    for (size_t i = 0; i < markings_.size(); ++i) {
      const Tensor& tensor = markings_[i].tensor;
      if (is_marked_[i] || is_sent(i)) continue;
      const Initialiser* const initialiser = initialisers_[i].get();
      const Box own = box(i);
      shards_[i] = initialiser == nullptr ? part_of(tensor.hold(), own)
                                          : make_box(*initialiser, tensor.dtype(), own.offset, own.extent);
    }
  }

  void fetch() {
    Parcel parcel;
    const auto take = [this](size_t leaf, const Tensor& whole) { shards_[leaf] = part_of(whole, box(leaf)); };
    for (size_t i = 0; i < markings_.size(); ++i) {
      const Tensor& tensor = markings_[i].tensor;
      if (is_marked_[i] || !is_sent(i)) continue;
      if (!parcel.empty() && (!together_ || !parcel.has_room(tensor))) parcel.send(call_, source_, take);
      parcel.add(i, tensor);
    }
    if (!parcel.empty()) parcel.send(call_, source_, take);
  }

  bool mark(size_t leaf) {
    const Tensor& tensor = markings_[leaf].tensor;
    return tensor.set_shard_slot(std::make_unique<Sharding>(line(), call_.name_of(static_cast<uint32_t>(leaf)),
                                                            tensor.shape(),
                                                            Lying{specs_[leaf], std::move(shards_[leaf])}));
  }

  const std::vector<Marking>& markings_;
  const int64_t source_;
  const bool together_;
  // Kept until the call has ended: to drop an initialiser may run host code.
  std::vector<std::shared_ptr<const Initialiser>> initialisers_;
  std::vector<bool> is_marked_;  // at the start of the call: marking by other threads meanwhile changes no exchange
  CallOnLine call_;
  std::vector<Spec> specs_;
  std::vector<Tensor> shards_;  // undefined for leaves that were sharded already
};

}  // namespace

void mark_sharding(const Tensor& tensor, const Line& line, const std::string& text, int64_t source) {
  // Kept until the call has ended: to drop an initialiser may run host code.
  const std::shared_ptr<const Initialiser> initialiser = tensor.initialiser();
  CallOnLine call(line, "mark_sharding");
  const MeshShape& mesh = line.program->shape();
  std::string what = fmt::format("mark_sharding({}, {}, {})", describe(tensor), text, source);
  Spec spec;
  try {
    spec = check_marking(tensor, line, text, source);
  } catch (const Error& error) {
    call.note_failure(what, error);
    throw;
  }
  if (source < 0 && initialiser == nullptr) what += line.program->describe_replicas({&tensor, 1});
  call.note(what, Fingerprint().add(what).add(autograd::requires_grad(tensor) ? 1 : 0).value());
  if (Sharding::of(tensor) != nullptr) return;
  bool is_first = false;
  try {
    const Box box = box_of(mesh, spec, tensor.shape(), line.program->position());
    Tensor shard = make_part(tensor, initialiser.get(), box, call, source);
    is_first = tensor.set_shard_slot(
        std::make_unique<Sharding>(line, call.name_of(0), tensor.shape(), Lying{spec, std::move(shard)}));
  } catch (...) {
    // Other members have sharded the tensor, which this one cannot.
    const Error error = current_error();
    if (initialiser != nullptr || error.status() == Status::kOutOfMemory) call.end_mesh(error);
    throw;
  }
  if (!is_first) fail(Status::kInvalidState, "mark_sharding: {} is sharded by another thread", describe(tensor));
}

void mark_all(const std::vector<Marking>& markings, const Line& line, const std::string& what, int64_t source,
              bool together) {
  Marker(markings, line, source, together).run(what);
}

}  // namespace distag::spmd
