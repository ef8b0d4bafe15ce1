#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "layout/spec.h"
#include "spmd/row_order.h"
#include "tensor/value.h"

namespace distag::spmd {

// The numbers are those of distag_batch_mode.
enum class BatchMode : int32_t {
  kGlobal = 1,  // each member's source gives the whole
  kLocal = 2,   // each member's source gives its part
  kRoot = 3,    // the member at position 0 gives the whole, which is sent
  kRows = 4,    // the loader chooses rows, and asks each member for those that it holds
};

struct EntrySpec {
  std::optional<std::string> key;  // empty: for any tensor
  std::string spec;
};

// The settings of a loader. Fields behind the specs are for ROWS only.
struct LoaderSettings {
  static constexpr int64_t kEndless = -1;
  static constexpr uint32_t kMostAhead = 4096;
  static constexpr int64_t kMostRows = int64_t{1} << 28;  // in one batch

  BatchMode mode = BatchMode::kGlobal;
  size_t prefetch = 2;
  size_t concurrency = 1;
  std::vector<EntrySpec> specs;
  int64_t row_count = 0;
  int64_t batch_rows = 0;
  int64_t epochs = 0;
  uint64_t seed = 0;
  bool shuffle = false;
  bool drop_last = false;

  // Throws INVALID_ARGUMENT.
  void check() const;
  // The next batch of a saved state. The state must be of the same settings; the epochs may be more.
  uint64_t first_of(const Value& state) const;
  Value state(uint64_t next) const;
  std::string describe() const;
};

// The rows of each batch.
class BatchRows {
 public:
  struct Range {
    uint64_t epoch = 0;
    int64_t first = 0;  // in the order of the epoch
    int64_t count = 0;  // 0: unknown to the loader, unless the mode is ROWS
  };
  explicit BatchRows(const LoaderSettings& settings);

  bool are_chosen() const { return are_chosen_; }
  // Whether the data ends before batch `number`.
  bool is_past(uint64_t number) const;
  std::optional<uint64_t> batches() const;  // empty: without end, or unknown
  Range range(uint64_t number) const;
  // The rows of one part of a batch.
  std::vector<int64_t> rows(const Range& range, layout::Range part) const;

 private:
  const bool are_chosen_;
  const int64_t row_count_;
  const int64_t batch_rows_;
  const int64_t epochs_;
  uint64_t in_epoch_ = 0;  // batches
  const RowOrder order_;
};

// The specs of a batch's entries.
class BatchSpecs {
 public:
  // Throws INVALID_ARGUMENT for a text that is no spec of any tensor, or is a sum; with ROWS, also unless all specs cut
  // the first dim alike.
  BatchSpecs(const layout::MeshShape& mesh, const LoaderSettings& settings);

  // The spec of an entry of a map, or of another tensor. Throws INVALID_ARGUMENT naming entry, rank and spec.
  layout::Spec of(const std::string& key, size_t rank) const;
  // Throws NOT_FOUND or INVALID_ARGUMENT if the keys of a batch are not those of the specs. A batch that is no map has
  // no keys.
  void check_entries(bool is_map, const std::vector<std::string>& keys) const;
  // With ROWS, the axes that cut the first dim.
  const layout::Axes& row_axes() const { return row_axes_; }

 private:
  layout::Spec parse(const std::string& text, const std::string& key, size_t rank) const;

  const layout::MeshShape& mesh_;
  const bool are_rows_;
  const std::vector<EntrySpec> specs_;
  layout::Axes row_axes_;
};

}  // namespace distag::spmd
