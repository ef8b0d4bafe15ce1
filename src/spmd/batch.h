#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "layout/spec.h"
#include "spmd/loader_settings.h"
#include "tensor/value.h"

// A batch of a loader as its members agree on it.
namespace distag::spmd {

struct BatchEntry {
  std::string key;  // of a map
  Dtype dtype = Dtype::kFloat32;
  Dims shape;  // of the whole; in LOCAL of the member's part
};

enum class BatchForm : int32_t { kTensor = 1, kList = 2, kMap = 3 };

// What a member says of one batch.
struct BatchWord {
  enum class Kind : int32_t {
    kBatch = 1,
    kNothing = 2,   // it has no part in making this one
    kEnd = 3,       // its data has ended
    kFailed = 4,    // its source has
    kReleased = 5,  // it has released the loader
  };
  Kind kind = Kind::kNothing;
  std::optional<Error> error;
  BatchForm form = BatchForm::kTensor;
  std::vector<BatchEntry> entries;
  uint64_t elements = 0;  // a hash of those that others should have too; 0: not compared
};

// As numbers, one after the other; and those of all members, as they stand in a tensor. Throws PROTOCOL.
Tensor write_word(const BatchWord& word);
std::vector<BatchWord> read_words(const Tensor& all, size_t members);

// A batch on its way at one member: its word, and its own parts. Of the member that has the batch of all there are the
// parts of each member, one member after the other.
struct MadeBatch {
  BatchWord word;
  Tensors parts;
};

// The rules of batches on one member.
class BatchRules {
 public:
  BatchRules(const layout::MeshShape& mesh, int64_t position, const LoaderSettings& settings, bool compares_elements);

  // Whether this member's source is asked for the batch, and with ROWS for which of its rows.
  bool is_asked(const BatchRows::Range& range) const;
  layout::Range own_rows(const BatchRows::Range& range) const;
  // Of a value that the source has given; null: its data has ended. Throws what is wrong with it.
  MadeBatch take(const Value& given, const BatchRows::Range& range) const;
  const BatchSpecs& specs() const { return specs_; }

 private:
  BatchEntry entry_of(const std::string& key, const Tensor& given, const BatchRows::Range& range) const;
  void add_parts(MadeBatch& made, const Tensor& given, const BatchEntry& entry) const;
  uint64_t hash_of(const Tensors& given) const;

  const layout::MeshShape& mesh_;
  const int64_t position_;
  const BatchMode mode_;
  const bool compares_elements_;
  const BatchSpecs specs_;
};

// What all members make of their words, the same on each.
struct Agreement {
  bool has_ended = false;
  std::optional<Error> failure;
  BatchForm form = BatchForm::kTensor;
  std::vector<BatchEntry> entries;  // of the whole
  std::vector<layout::Spec> specs;  // of these
};
// `names` describes the member at a position.
Agreement agree_on(const layout::MeshShape& mesh, const BatchSpecs& specs, BatchMode mode, uint64_t number,
                   const std::vector<BatchWord>& words, const std::vector<std::string>& names);

}  // namespace distag::spmd
