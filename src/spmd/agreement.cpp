#include "spmd/agreement.h"

#include <algorithm>
#include <cstring>

#include "base/cut_text.h"

namespace distag::spmd {
namespace {

constexpr size_t kTextWords = 64;  // in a message: 512 bytes
constexpr size_t kHead = 1 + kTextWords;

void write_error(int64_t* row, const Error& error) {
  row[0] = static_cast<int64_t>(error.status());
  const std::string text = cut_middle(error.message(), kTextWords * sizeof(int64_t) - 1);
  std::memcpy(row + 1, text.c_str(), text.size() + 1);
}

Error read_error(const int64_t* row) {
  const char* text = reinterpret_cast<const char*>(row + 1);
  return {static_cast<Status>(row[0]), std::string(text, strnlen(text, kTextWords * sizeof(int64_t)))};
}

// Ends the mesh when this member alone fails: the others would wait for its row.
Tensor gather_outcomes(CallOnLine& call, size_t count, const std::function<std::vector<int64_t>()>& step) {
  try {
    Tensor row = Tensor::empty(Dtype::kInt64, {static_cast<int64_t>(kHead + count)});
    auto* words = row.mutable_data_as<int64_t>();
    std::fill_n(words, kHead + count, 0);
    try {
      const std::vector<int64_t> numbers = step();
      std::copy_n(numbers.begin(), std::min(numbers.size(), count), words + kHead);
    } catch (...) {
      write_error(words, current_error());
    }
    return call.gather_words(row);
  } catch (...) {
    call.end_mesh(current_error());
    throw;
  }
}

}  // namespace

Outcomes agree(CallOnLine& call, size_t count, const std::function<std::vector<int64_t>()>& step) {
  const Tensor rows = gather_outcomes(call, count, step);
  Outcomes outcomes;
  const layout::MeshShape& mesh = call.line().program->shape();
  const auto* all = rows.data_as<int64_t>();
  for (size_t position = 0; position < mesh.ranks().size(); ++position) {
    const int64_t* own = all + position * (kHead + count);
    if (own[0] != 0) {
      outcomes.failure = read_error(own);
      outcomes.failure->set_origin_rank(mesh.ranks()[position]);
      return outcomes;
    }
    outcomes.numbers.emplace_back(own + kHead, own + kHead + count);
  }
  return outcomes;
}

}  // namespace distag::spmd
