// The words of a batch, that is the messages of its members: as numbers, and the agreement that follows from them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "spmd/batch.h"
#include "spmd/parts.h"

namespace distag::spmd {
namespace {

constexpr size_t kLongestText = 512;

class NumberWriter {
 public:
  NumberWriter() { add(0); }
  void add(int64_t number) { numbers_.push_back(number); }
  void add(const std::string& text) {
    add(static_cast<int64_t>(text.size()));
    const size_t first = numbers_.size();
    numbers_.resize(first + (text.size() + sizeof(int64_t) - 1) / sizeof(int64_t));
    std::memcpy(numbers_.data() + first, text.data(), text.size());
  }
  // Puts the number of numbers in front.
  Tensor finish() {
    numbers_[0] = static_cast<int64_t>(numbers_.size());
    Tensor row = Tensor::empty(Dtype::kInt64, {numbers_[0]});
    std::memcpy(row.mutable_data(), numbers_.data(), row.byte_size());
    return row;
  }

 private:
  std::vector<int64_t> numbers_;
};

class NumberReader {
 public:
  explicit NumberReader(std::span<const int64_t> numbers) : left_(numbers) {}
  int64_t number() {
    if (left_.empty()) fail(Status::kProtocol, "a member's word of a batch is cut");
    const int64_t number = left_.front();
    left_ = left_.subspan(1);
    return number;
  }
  // Reads a count. Throws PROTOCOL above `most`.
  size_t count(size_t most) {
    const int64_t count = number();
    if (count < 0 || static_cast<uint64_t>(count) > most) {
      fail(Status::kProtocol, "a member's word of a batch has a count of {}", count);
    }
    return static_cast<size_t>(count);
  }
  std::string text() {
    const size_t size = count(left_.size() * sizeof(int64_t));
    const size_t words = (size + sizeof(int64_t) - 1) / sizeof(int64_t);
    if (words > left_.size()) fail(Status::kProtocol, "a member's word of a batch is cut");
    std::string text(reinterpret_cast<const char*>(left_.data()), size);
    left_ = left_.subspan(words);
    return text;
  }
  size_t left() const { return left_.size(); }
  NumberReader part(size_t size) {
    const NumberReader part(left_.subspan(0, size));
    left_ = left_.subspan(size);
    return part;
  }

 private:
  std::span<const int64_t> left_;
};

// Cuts the text between UTF-8 characters.
std::string shortened(std::string text) {
  if (text.size() <= kLongestText) return text;
  size_t size = kLongestText;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  text.resize(size);
  return text;
}

template <typename Enum>
Enum enumerator(int64_t number, Enum last) {
  if (number < 1 || number > static_cast<int64_t>(last)) {
    fail(Status::kProtocol, "a member's word of a batch says {} where there are {}", number,
         static_cast<int64_t>(last));
  }
  return static_cast<Enum>(number);
}

BatchWord read_word(NumberReader row) {
  BatchWord word;
  word.kind = enumerator(row.number(), BatchWord::Kind::kReleased);
  if (word.kind == BatchWord::Kind::kFailed) {
    const auto status = static_cast<Status>(row.number());
    word.error = Error(status, row.text());
  }
  if (word.kind != BatchWord::Kind::kBatch) return word;
  word.elements = static_cast<uint64_t>(row.number());
  word.form = enumerator(row.number(), BatchForm::kMap);
  const size_t count = row.count(row.left());
  for (size_t i = 0; i < count; ++i) {
    BatchEntry entry;
    entry.key = row.text();
    entry.dtype = static_cast<Dtype>(row.number());
    checked_dtype_size(entry.dtype);
    entry.shape.resize(row.count(kMaxRank));
    for (int64_t& size : entry.shape) size = static_cast<int64_t>(row.count(size_t{INT64_MAX}));
    word.entries.push_back(std::move(entry));
  }
  return word;
}

}  // namespace

Tensor write_word(const BatchWord& word) {
  NumberWriter row;
  row.add(static_cast<int64_t>(word.kind));
  if (word.kind == BatchWord::Kind::kFailed) {
    row.add(static_cast<int64_t>(word.error->status()));
    row.add(shortened(word.error->message()));
  }
  if (word.kind != BatchWord::Kind::kBatch) return row.finish();
  row.add(static_cast<int64_t>(word.elements));
  row.add(static_cast<int64_t>(word.form));
  row.add(static_cast<int64_t>(word.entries.size()));
  for (const BatchEntry& entry : word.entries) {
    row.add(entry.key);
    row.add(static_cast<int64_t>(entry.dtype));
    row.add(static_cast<int64_t>(entry.shape.size()));
    for (const int64_t size : entry.shape) row.add(size);
  }
  return row.finish();
}

std::vector<BatchWord> read_words(const Tensor& all, size_t members) {
  NumberReader rows({all.data_as<int64_t>(), static_cast<size_t>(all.count())});
  std::vector<BatchWord> words;
  for (size_t i = 0; i < members; ++i) {
    const size_t size = rows.count(rows.left());
    if (size < 1) fail(Status::kProtocol, "a member's word of a batch is empty");
    words.push_back(read_word(rows.part(size - 1)));
  }
  if (rows.left() != 0) fail(Status::kProtocol, "the words of a batch go on behind that of the last member");
  return words;
}

namespace {

std::string describe_entry(const BatchWord& word, size_t entry) {
  if (entry >= word.entries.size()) return "nothing";
  const BatchEntry& given = word.entries[entry];
  return fmt::format("{}{}{}", given.key.empty() ? "" : fmt::format("\"{}\" ", given.key), dtype_name(given.dtype),
                     to_string(given.shape));
}

const char* form_name(BatchForm form) {
  return form == BatchForm::kMap ? "a map" : form == BatchForm::kList ? "a list" : "a tensor";
}

bool fits(const BatchEntry& a, const BatchEntry& b, BatchMode mode) {
  if (a.key != b.key || a.dtype != b.dtype) return false;
  return mode == BatchMode::kLocal ? a.shape.size() == b.shape.size() : a.shape == b.shape;
}

// How the batches of two members differ; empty: they do not.
std::string difference(const BatchWord& a, const BatchWord& b, BatchMode mode, const std::string& name_a,
                       const std::string& name_b) {
  if (a.form != b.form) {
    return fmt::format("{} gives {}, {} {}", name_a, form_name(a.form), name_b, form_name(b.form));
  }
  for (size_t i = 0; i < std::max(a.entries.size(), b.entries.size()); ++i) {
    const bool has_both = i < a.entries.size() && i < b.entries.size();
    if (has_both && fits(a.entries[i], b.entries[i], mode)) continue;
    return fmt::format("{} gives {}, {} {}", name_a, describe_entry(a, i), name_b, describe_entry(b, i));
  }
  return {};
}

std::optional<size_t> first_of(const std::vector<BatchWord>& words, BatchWord::Kind kind) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].kind == kind) return i;
  }
  return std::nullopt;
}

// Whether batch `number` does not come: a source failed, the data has ended, or a member has released the loader.
bool is_over(Agreement& agreed, const layout::MeshShape& mesh, uint64_t number, const std::vector<BatchWord>& words,
             const std::vector<std::string>& names) {
  if (const auto failed = first_of(words, BatchWord::Kind::kFailed)) {
    agreed.failure = *words[*failed].error;
    agreed.failure->add_context(fmt::format("batch {}, the source of {}", number, names[*failed]));
    agreed.failure->set_origin_rank(mesh.ranks()[*failed]);
    return true;
  }
  agreed.has_ended = first_of(words, BatchWord::Kind::kEnd).has_value();
  if (agreed.has_ended) return true;
  const auto released = first_of(words, BatchWord::Kind::kReleased);
  if (!released) return false;
  agreed.failure =
      Error(Status::kDisconnected, fmt::format("batch {}: {} has released the loader", number, names[*released]));
  agreed.failure->set_origin_rank(mesh.ranks()[*released]);
  return true;
}

// Throws INVALID_ARGUMENT if the batches of two members differ, and DIVERGED if only their elements do; its origin is
// the first of the two.
void compare(const layout::MeshShape& mesh, const BatchSpecs& specs, BatchMode mode,
             const std::vector<BatchWord>& words, size_t first, const std::vector<std::string>& names) {
  for (size_t i = first + 1; i < words.size(); ++i) {
    if (words[i].kind != BatchWord::Kind::kBatch) continue;
    const std::string differs = difference(words[first], words[i], mode, names[first], names[i]);
    if (!differs.empty()) {
      throw Error(Status::kInvalidArgument, "the members' batches differ: " + differs)
          .set_origin_rank(mesh.ranks()[first]);
    }
    for (size_t other = first; other < i; ++other) {
      const auto index = [&](size_t position) {
        return mode == BatchMode::kRows ? mesh.index_along(specs.row_axes(), static_cast<int64_t>(position)) : 0;
      };
      const bool is_compared = words[other].elements != 0 && words[i].elements != 0 && index(other) == index(i);
      if (!is_compared || words[other].elements == words[i].elements) continue;
      throw Error(Status::kDiverged,
                  fmt::format("{} and {} give other elements for the same rows", names[other], names[i]))
          .set_origin_rank(mesh.ranks()[other]);
    }
  }
}

Dims whole_shape(const layout::MeshShape& mesh, const layout::Spec& spec, const std::vector<BatchWord>& words,
                 size_t entry) {
  std::vector<Dims> parts;
  for (const BatchWord& word : words) parts.push_back(word.entries[entry].shape);
  return shape_of_parts(mesh, spec, parts, "a batch");
}

}  // namespace

Agreement agree_on(const layout::MeshShape& mesh, const BatchSpecs& specs, BatchMode mode, uint64_t number,
                   const std::vector<BatchWord>& words, const std::vector<std::string>& names) {
  Agreement agreed;
  if (is_over(agreed, mesh, number, words, names)) return agreed;
  const auto first = first_of(words, BatchWord::Kind::kBatch);
  const bool has_all = first && (mode == BatchMode::kRows || mode == BatchMode::kRoot ||
                                 std::all_of(words.begin(), words.end(), [](const BatchWord& word) {
                                   return word.kind == BatchWord::Kind::kBatch;
                                 }));
  if (!has_all) fail(Status::kProtocol, "batch {}: a member says nothing of its part", number);
  try {
    compare(mesh, specs, mode, words, *first, names);
    agreed.form = words[*first].form;
    agreed.entries = words[*first].entries;
    for (size_t i = 0; i < agreed.entries.size(); ++i) {
      BatchEntry& entry = agreed.entries[i];
      agreed.specs.push_back(specs.of(entry.key, entry.shape.size()));
      if (mode == BatchMode::kLocal) entry.shape = whole_shape(mesh, agreed.specs.back(), words, i);
      check_shape(mesh, agreed.specs.back(), entry.shape, dtype_size(entry.dtype));
    }
  } catch (const Error& error) {
    agreed.failure = error;
    agreed.failure->add_context(fmt::format("batch {}", number));
  }
  return agreed;
}

}  // namespace distag::spmd
