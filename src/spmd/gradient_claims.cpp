#include "spmd/gradient_claims.h"

#include <fmt/format.h>

#include <span>

namespace distag::spmd {

void GradientClaims::note(const ShardedNode& entry, const Tensor& gradient) {
  if (entry.repeated() == 0) return;
  Fingerprint fingerprint;
  if (gradient) {
    const Tensor held = gradient.contiguous();
    fingerprint.add(std::span<const std::byte>(held.data(), held.byte_size()));
  }
  claims_.push_back({entry.call(), layout::axes_of(entry.repeated()), fingerprint.value()});
}

std::optional<Error> GradientClaims::compare(CallOnLine& call, bool has_failed) const {
  if (claims_.empty()) return std::nullopt;
  const layout::MeshShape& mesh = call.line().program->shape();
  const auto items = static_cast<int64_t>(claims_.size()) + 1;
  Tensor own = Tensor::empty(Dtype::kInt64, {items});
  auto* words = own.mutable_data_as<int64_t>();
  words[0] = has_failed ? 1 : 0;
  for (size_t i = 0; i < claims_.size(); ++i) words[i + 1] = static_cast<int64_t>(claims_[i].hash);
  const Tensor rows = call.gather_words(own);
  const auto word = [&rows, items](int64_t position, size_t i) {
    return rows.data_as<int64_t>()[position * items + static_cast<int64_t>(i)];
  };
  for (int64_t position = 0; position < mesh.count(); ++position) {
    if (word(position, 0) != 0) return std::nullopt;
  }
  for (size_t i = 0; i < claims_.size(); ++i) {
    for (int64_t position = 0; position < mesh.count(); ++position) {
      const int64_t first = mesh.moved(position, claims_[i].axes, 0);
      if (word(position, i + 1) == word(first, i + 1)) continue;
      const int32_t rank = mesh.ranks()[static_cast<size_t>(first)];
      Error error(Status::kDiverged,
                  fmt::format("backward: rank {} and rank {} of mesh \"{}\" have different gradients for their copies "
                              "of call {}, to_local: if members use their copies differently, give gradient_spec "
                              "sum({})",
                              rank, mesh.ranks()[static_cast<size_t>(position)], mesh.name(), claims_[i].call,
                              layout::names_of(mesh, claims_[i].axes)));
      return error.set_origin_rank(rank);
    }
  }
  return std::nullopt;
}

}  // namespace distag::spmd
