#include "store/index.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "store/index_reader.h"
#include "store/json.h"
#include "store/tree.h"

namespace distag::store {
namespace {

constexpr size_t kSumSize = 20;  // of ,"crc32":"01234567"} at the end of an index
constexpr int64_t kZeros[kMaxRank] = {};

// [3, 2]
template <typename Numbers>
void add_list(std::string& text, const Numbers& numbers) {
  text += fmt::format("[{}]", fmt::join(numbers.begin(), numbers.end(), ","));
}

std::string in_quotes(std::string_view text) { return nlohmann::json(text).dump(); }

void add_box(std::string& text, const StoredBox& box) {
  text += R"({"crc32":)";
  add_list(text, box.pieces);
  text += R"(,"extent":)";
  add_list(text, box.extent);
  text += fmt::format(R"(,"file":{},"name":{},"offset":)", in_quotes(box.file->first), in_quotes(box.name));
  add_list(text, box.offset);
  text += '}';
}

void add_entry(std::string& text, const StoredEntry& entry) {
  text += R"({"boxes":[)";
  for (const StoredBox& box : entry.boxes) {
    if (&box != entry.boxes.data()) text += ',';
    add_box(text, box);
  }
  text +=
      fmt::format(R"(],"dtype":"{}","shape":)", entry.other == nullptr ? stored_name(entry.dtype) : entry.other->name);
  add_list(text, entry.shape);
  text += fmt::format(R"(,"spec":{}}})", in_quotes(entry.spec));
}

// {"map":{"a/b":{"tensor":"a~1b"}}}
std::string tree_of_files(const Index& index) {
  std::string text = R"({"map":{)";
  for (const StoredEntry& entry : index.entries) {
    if (text.back() != '{') text += ',';
    text += fmt::format(R"({}:{{"tensor":{}}})", in_quotes(entry.boxes[0].name), in_quotes(entry.path));
  }
  return text + "}}";
}

std::string sum_text(uint32_t sum) { return fmt::format(",\"crc32\":\"{:08x}\"}}", sum); }

}  // namespace

void Index::add(const StoredEntry& entry) {
  StoredEntry& kept = entries.emplace_back(entry);
  kept.path = arena_.copy_text(entry.path);
  kept.shape = arena_.copy_list(entry.shape);
  kept.spec = arena_.copy_text(entry.spec);
  kept.boxes = arena_.copy_list(entry.boxes);
  for (StoredBox& box : kept.boxes) {
    const bool is_whole = std::ranges::equal(box.extent, kept.shape);
    const bool is_first = std::ranges::count(box.offset, 0) == std::ssize(box.offset);
    box.extent = is_whole ? kept.shape : arena_.copy_list(box.extent);
    box.offset = is_first ? std::span(kZeros).first(box.offset.size()) : arena_.copy_list(box.offset);
    box.name = box.name == kept.path ? kept.path : arena_.copy_text(box.name);
    box.pieces = arena_.copy_list(box.pieces);
  }
}

void Index::add(const StoredTensor& tensor, const StoredFile& file, uint64_t begin) {
  const std::string path = escaped(tensor.name);
  const auto zeros = std::span(kZeros).first(tensor.shape.size());
  StoredBox box{zeros, tensor.shape, tensor.name, {}, &file, begin};
  add({path, tensor.shape, {}, {&box, 1}, tensor.dtype, tensor.other});
}

const StoredEntry* Index::sort() {
  std::ranges::sort(entries, {}, &StoredEntry::path);
  const auto twin = std::ranges::adjacent_find(entries, {}, &StoredEntry::path);
  return twin == entries.end() ? nullptr : &*twin;
}

const StoredEntry* Index::find(std::string_view path) const {
  const auto found = std::ranges::lower_bound(entries, path, {}, &StoredEntry::path);
  return found == entries.end() || found->path != path ? nullptr : &*found;
}

Value value_of(const Index& index, const std::string& file, const std::function<Value(const StoredEntry&)>& make) {
  if (index.tree.empty()) {
    Value::Map tensors;
    tensors.reserve(index.entries.size());
    for (const StoredEntry& entry : index.entries) tensors.emplace_back(entry.boxes[0].name, make(entry));
    return Value::map(std::move(tensors));
  }
  return parse_tree(index.tree, file, [&](const std::string& path) {
    const StoredEntry* const entry = index.find(path);
    if (entry == nullptr) fail(Status::kProtocol, "\"{}\" lacks entry \"{}\"", file, path);
    return make(*entry);
  });
}

std::string name_of_part(const std::string& path, const Dims& shape, const Dims& offset, const Dims& extent) {
  if (extent == shape) return path;
  std::string ranges;
  for (size_t d = 0; d < shape.size(); ++d) {
    ranges += fmt::format("{}{}:{}", ranges.empty() ? "" : ", ", offset[d], offset[d] + extent[d]);
  }
  return fmt::format("{}[{}]", path, ranges);
}

std::string print_index(const Index& index) {
  std::string text = R"({"entries":{)";
  for (const StoredEntry& entry : index.entries) {
    if (text.back() != '{') text += ',';
    text += in_quotes(entry.path) + ':';
    add_entry(text, entry);
  }
  text += R"(},"headers":{)";
  for (const auto& [name, sum] : index.files) {
    if (!sum) continue;
    if (text.back() != '{') text += ',';
    text += fmt::format("{}:{}", in_quotes(name), *sum);
  }
  text += fmt::format(R"(}},"id":{},"mesh":{},"value":)", in_quotes(index.id), in_quotes(index.mesh));
  text += index.tree.empty() ? tree_of_files(index) : index.tree;
  text += R"(,"version":1)";
  return text + sum_text(crc32_of(0, text.data(), text.size()));
}

Index parse_index(std::string_view text, const std::string& file) {
  if (text.size() < kSumSize) refuse(file, "it is cut");
  const std::string_view summed = text.substr(0, text.size() - kSumSize);
  if (text.substr(summed.size()) != sum_text(crc32_of(0, summed.data(), summed.size()))) {
    refuse(file, "its text does not have the crc32 at its end");
  }
  return read_index(text, file);
}

}  // namespace distag::store
