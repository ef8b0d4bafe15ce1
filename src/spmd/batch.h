#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "layout/spec.h"
#include "spmd/loader_settings.h"
#include "tensor/value.h"

// Batches of a loader, as its members agree on them.
namespace distag::spmd {

struct BatchEntry {
  std::string key;  // for a map only
  Dtype dtype = Dtype::kFloat32;
  Dims shape;  // of the whole batch; with LOCAL, of the member's part
};

enum class BatchForm : int32_t { kTensor = 1, kList = 2, kMap = 3 };

// The message in which a member describes one batch.
struct BatchWord {
  enum class Kind : int32_t {
    kBatch = 1,
    kNothing = 2,   // the member has no part in making this batch
    kEnd = 3,       // the member's data has ended
    kFailed = 4,    // the member's source has failed
    kReleased = 5,  // the member has released the loader
  };
  Kind kind = Kind::kNothing;
  std::optional<Error> error;
  BatchForm form = BatchForm::kTensor;
  std::vector<BatchEntry> entries;
  uint64_t elements = 0;  // a hash of elements that other members should have too; 0: not compared
};

// A word as a tensor of numbers; and the words of all members, read from the gathered tensor. Throws PROTOCOL.
Tensor write_word(const BatchWord& word);
std::vector<BatchWord> read_words(const Tensor& all, size_t members);

// A batch that one member has made: its word, and its own parts. The member that makes the batch of all members has the
// parts of each member instead, one member after the other.
struct MadeBatch {
  BatchWord word;
  Tensors parts;
};

// The rules of batches on one member.
class BatchRules {
 public:
  BatchRules(const layout::MeshShape& mesh, int64_t position, const LoaderSettings& settings, bool compares_elements);

  // Whether this member's source is asked for the batch; and, with ROWS, which rows it is asked for.
  bool is_asked(const BatchRows::Range& range) const;
  layout::Range own_rows(const BatchRows::Range& range) const;
  // Takes a value that the source has given; null: its data has ended. Throws if the value does not fit.
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

// The result that all members derive from their words, the same on each.
struct Agreement {
  bool has_ended = false;
  std::optional<Error> failure;
  BatchForm form = BatchForm::kTensor;
  std::vector<BatchEntry> entries;  // shapes of the whole
  std::vector<layout::Spec> specs;  // one for each entry
};
// `names` has a description of the member at each position.
Agreement agree_on(const layout::MeshShape& mesh, const BatchSpecs& specs, BatchMode mode, uint64_t number,
                   const std::vector<BatchWord>& words, const std::vector<std::string>& names);

}  // namespace distag::spmd
