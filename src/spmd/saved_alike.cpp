#include "spmd/saved_alike.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/cut_text.h"
#include "base/error.h"
#include "spmd/agreement.h"

namespace distag::spmd {
namespace {

using Entries = std::map<std::string, std::string>;

constexpr size_t kMostPath = 160;
constexpr size_t kMostText = 120;

std::vector<int64_t> hashes_of(const Entries& entries) {
  std::vector<int64_t> hashes;
  hashes.reserve(entries.size());
  for (const auto& [path, text] : entries) {
    hashes.push_back(static_cast<int64_t>(Fingerprint().add(path).add(text).value()));
  }
  return hashes;
}

int64_t sum_of(const std::vector<int64_t>& hashes) {
  Fingerprint all;
  for (const int64_t hash : hashes) all.add(static_cast<uint64_t>(hash));
  return static_cast<int64_t>(all.value());
}

std::string entry_at(const Entries& entries, size_t number) {
  if (number >= entries.size()) return "no more entries";
  const auto& [path, text] = *std::next(entries.begin(), static_cast<ptrdiff_t>(number));
  return fmt::format("\"{}\" = {}", cut_to(path, kMostPath), cut_to(text, kMostText));
}

// Sends a text of one member to all of them.
std::string told_by(CallOnLine& call, size_t position, const std::string& text) {
  const Outcomes told = agree(call, 0, [&]() -> std::vector<int64_t> {
    if (static_cast<size_t>(call.line().program->position()) == position) throw Error(Status::kDiverged, text);
    return {};
  });
  return told.failure->message();
}

Error describe_difference(CallOnLine& call, const std::string& what, const Entries& entries,
                          const std::vector<int64_t>& hashes, const Outcomes& told) {
  size_t other = 1;
  while (told.numbers[other] == told.numbers[0]) ++other;
  const auto most = static_cast<size_t>(std::max(told.numbers[0][1], told.numbers[other][1]));
  const Outcomes rows = agree(call, most, [&] { return hashes; });
  if (rows.failure) return *rows.failure;
  size_t at = 0;
  while (at + 1 < most && rows.numbers[0][at] == rows.numbers[other][at]) ++at;
  const std::string first = told_by(call, 0, entry_at(entries, at));
  const std::string second = told_by(call, other, entry_at(entries, at));
  const layout::MeshShape& mesh = call.line().program->shape();
  Error error(Status::kDiverged,
              fmt::format("mesh \"{}\": {}: members save other values: rank {} has {}, rank {} has {}", mesh.name(),
                          what, mesh.ranks()[0], first, mesh.ranks()[other], second));
  return error.set_origin_rank(mesh.ranks()[0]);
}

}  // namespace

void check_saved_alike(CallOnLine& call, const std::string& what, const SavedValue& saved) {
  Entries entries;
  std::vector<int64_t> hashes;
  const Outcomes told = agree(call, 2, [&]() -> std::vector<int64_t> {
    if (saved.failure) throw *saved.failure;
    entries = saved.describe(*call.line().program);
    hashes = hashes_of(entries);
    return {sum_of(hashes), static_cast<int64_t>(hashes.size())};
  });
  if (told.failure) throw *told.failure;
  const bool is_same = std::all_of(told.numbers.begin(), told.numbers.end(),
                                   [&](const auto& numbers) { return numbers == told.numbers[0]; });
  if (is_same) return;
  const Error error = describe_difference(call, what, entries, hashes, told);
  call.end_mesh(error);
  throw error;
}

}  // namespace distag::spmd
