#include "spmd/loader_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "layout/spec_text.h"

namespace distag::spmd {
namespace {

using layout::Axes;
using layout::MeshShape;
using layout::Spec;

// The fields of a saved state by their names, without `next`.
std::vector<std::pair<std::string, int64_t>> fields_of(const LoaderSettings& settings) {
  return {{"mode", static_cast<int64_t>(settings.mode)},
          {"row_count", settings.row_count},
          {"batch_rows", settings.batch_rows},
          {"shuffle", settings.shuffle ? 1 : 0},
          {"seed", static_cast<int64_t>(settings.seed)},
          {"drop_last", settings.drop_last ? 1 : 0},
          {"epochs", settings.epochs}};
}

int64_t number_in(const Value& state, const std::string& name) {
  const Value* found = state.kind() == ValueKind::kMap ? state.find(name) : nullptr;
  if (found == nullptr || found->kind() != ValueKind::kInt64) {
    fail(Status::kInvalidArgument, "state: this is no state of a loader: it has no number \"{}\"", name);
  }
  return found->as_int64();
}

bool has_grown(int64_t before, int64_t now) {
  return now == LoaderSettings::kEndless || (before != LoaderSettings::kEndless && now >= before);
}

}  // namespace

void LoaderSettings::check() const {
  if (prefetch > kMostAhead) {
    fail(Status::kInvalidArgument, "prefetch is {}: at most {} batches are made ahead", prefetch, kMostAhead);
  }
  if (mode != BatchMode::kRows) {
    if (row_count == 0 && batch_rows == 0 && epochs == 0 && seed == 0 && !shuffle && !drop_last) return;
    fail(Status::kInvalidArgument,
         "row_count, batch_rows, epochs, seed, shuffle and drop_last are of DISTAG_BATCH_ROWS: leave them 0 here");
  }
  if (row_count < 0) fail(Status::kInvalidArgument, "row_count is {}: give the rows of the data", row_count);
  if (batch_rows < 1 || batch_rows > kMostRows) {
    fail(Status::kInvalidArgument, "batch_rows is {}: give 1 to {} rows of a batch", batch_rows, kMostRows);
  }
  if (epochs < 1 && epochs != kEndless) {
    fail(Status::kInvalidArgument, "epochs is {}: give a number, or DISTAG_FOREVER", epochs);
  }
  const auto in_epoch = static_cast<uint64_t>(row_count / batch_rows) + 1;
  uint64_t all = 0;
  if (epochs != kEndless &&
      (__builtin_mul_overflow(in_epoch, static_cast<uint64_t>(epochs), &all) || all > uint64_t{INT64_MAX})) {
    fail(Status::kInvalidArgument, "epochs is {}, which makes more batches than can be numbered: say DISTAG_FOREVER",
         epochs);
  }
}

uint64_t LoaderSettings::first_of(const Value& state) const {
  const int64_t next = number_in(state, "next");
  if (next < 0) fail(Status::kInvalidArgument, "state: next is {}, which is no number of a batch", next);
  for (const auto& [name, here] : fields_of(*this)) {
    const int64_t there = number_in(state, name);
    if (there == here || (name == "epochs" && has_grown(there, here))) continue;
    fail(Status::kInvalidArgument, "state: its loader had {} {}, and this one has {}", name, there, here);
  }
  return static_cast<uint64_t>(next);
}

Value LoaderSettings::state(uint64_t next) const {
  Value::Map entries{{"next", Value(static_cast<int64_t>(next))}};
  for (const auto& [name, here] : fields_of(*this)) entries.emplace_back(name, Value(here));
  return Value::map(std::move(entries));
}

std::string LoaderSettings::describe() const {
  std::string text;
  for (const auto& [name, here] : fields_of(*this))
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, here);
  for (const EntrySpec& entry : specs) text += fmt::format(", {}: {}", entry.key.value_or("any"), entry.spec);
  return text;
}

// ---- rows ----

BatchRows::BatchRows(const LoaderSettings& settings)
    : are_chosen_(settings.mode == BatchMode::kRows),
      row_count_(settings.row_count),
      batch_rows_(settings.batch_rows),
      epochs_(settings.epochs),
      order_(settings.shuffle ? RowOrder(settings.row_count, settings.seed) : RowOrder(settings.row_count)) {
  if (!are_chosen_) return;
  const bool has_rest = row_count_ % batch_rows_ != 0 && !settings.drop_last;
  in_epoch_ = static_cast<uint64_t>(row_count_ / batch_rows_) + (has_rest ? 1 : 0);
}

std::optional<uint64_t> BatchRows::batches() const {
  if (!are_chosen_) return std::nullopt;
  if (in_epoch_ == 0) return 0;
  if (epochs_ == LoaderSettings::kEndless) return std::nullopt;
  return in_epoch_ * static_cast<uint64_t>(epochs_);
}

bool BatchRows::is_past(uint64_t number) const {
  const std::optional<uint64_t> all = batches();
  return all && number >= *all;
}

BatchRows::Range BatchRows::range(uint64_t number) const {
  if (!are_chosen_) return {};
  const auto first = static_cast<int64_t>(number % in_epoch_) * batch_rows_;
  return {number / in_epoch_, first, std::min(batch_rows_, row_count_ - first)};
}

std::vector<int64_t> BatchRows::rows(const Range& range, layout::Range part) const {
  std::vector<int64_t> rows(static_cast<size_t>(part.extent));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = order_.row(range.epoch, range.first + part.offset + static_cast<int64_t>(i));
  }
  return rows;
}

// ---- specs ----

namespace {

// Parses the text as a spec of the smallest rank, at least `least`, that it fits. If it fits none, throws the error
// that describes the text best.
Spec fewest_dims(const MeshShape& mesh, const std::string& text, size_t least) {
  std::optional<Error> first;
  for (size_t rank = least; rank <= kMaxRank; ++rank) {
    try {
      return parse_spec(mesh, text, rank);
    } catch (const Error& error) {
      // An error about the number of dims does not mean that the text is wrong.
      const bool is_of_rank = error.message().find(" dims") != std::string::npos;
      if (!first || !is_of_rank) first = error;
      if (!is_of_rank) break;
    }
  }
  throw *first;
}

}  // namespace

BatchSpecs::BatchSpecs(const MeshShape& mesh, const LoaderSettings& settings)
    : mesh_(mesh), are_rows_(settings.mode == BatchMode::kRows), specs_(settings.specs) {
  if (specs_.empty()) row_axes_ = Axes{0};
  std::set<std::string> keys;
  for (const EntrySpec& entry : specs_) {
    if (!entry.key && specs_.size() > 1) {
      fail(Status::kInvalidArgument, "keys has a NULL among {}: that is for any tensor, and alone", specs_.size());
    }
    if (entry.key && !keys.insert(*entry.key).second) {
      fail(Status::kInvalidArgument, "keys has \"{}\" twice", *entry.key);
    }
    const Spec spec = fewest_dims(mesh, entry.spec, are_rows_ ? 1 : 0);
    if (mesh.used(spec.partial()) != 0) {
      fail(Status::kInvalidArgument, "spec {}: a batch is no sum of parts", entry.spec);
    }
    if (!are_rows_) continue;
    if (&entry == &specs_.front()) row_axes_ = spec.dim(0);
    if (mesh.used(spec.dim(0)) == mesh.used(row_axes_)) continue;
    fail(Status::kInvalidArgument, "specs {} and {} cut the first dim in different ways, and rows are of one",
         specs_.front().spec, entry.spec);
  }
}

Spec BatchSpecs::parse(const std::string& text, const std::string& key, size_t rank) const {
  try {
    return parse_spec(mesh_, text, rank);
  } catch (Error& error) {
    const std::string what = key.empty() ? "a tensor" : fmt::format("entry \"{}\"", key);
    throw error.add_context(fmt::format("{} of {} dims, spec {}", what, rank, text));
  }
}

Spec BatchSpecs::of(const std::string& key, size_t rank) const {
  const std::string what = key.empty() ? "a tensor" : fmt::format("entry \"{}\"", key);
  if (are_rows_ && rank == 0) fail(Status::kInvalidArgument, "{} is a scalar, which has no rows", what);
  Spec spec(rank);
  if (specs_.empty()) {
    if (rank > 0) spec.dim(0) = Axes{0};
    return spec;
  }
  const auto found = std::find_if(specs_.begin(), specs_.end(),
                                  [&key](const EntrySpec& entry) { return !entry.key || *entry.key == key; });
  if (found != specs_.end()) spec = parse(found->spec, key, rank);
  if (are_rows_ && !(mesh_.used(spec.dim(0)) == mesh_.used(row_axes_))) {
    fail(Status::kInvalidArgument, "{} of {} dims has its rows cut as {}, and others as {}: all have the same rows",
         what, rank, print_spec(mesh_, spec), specs_.front().spec);
  }
  return spec;
}

void BatchSpecs::check_entries(bool is_map, const std::vector<std::string>& keys) const {
  for (const EntrySpec& entry : specs_) {
    if (!entry.key || (is_map && std::find(keys.begin(), keys.end(), *entry.key) != keys.end())) continue;
    if (!is_map) {
      fail(Status::kInvalidArgument, "spec {} is of entry \"{}\", and the batch is no map", entry.spec, *entry.key);
    }
    std::string all;
    for (const std::string& key : keys) all += fmt::format("{}\"{}\"", all.empty() ? "" : ", ", key);
    fail(Status::kNotFound, "the batch has no entry \"{}\": it has {}", *entry.key, all.empty() ? "none" : all);
  }
}

}  // namespace distag::spmd
