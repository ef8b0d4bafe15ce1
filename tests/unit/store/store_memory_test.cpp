// Memory that the readers of headers and indexes allocate: a few times the size of the text that they are given,
// whatever it says, and next to nothing where its first bytes are wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "store/index_reader.h"
#include "support/counted_memory.h"
#include "support/expect.h"

namespace distag::store {
namespace {

using testing::status_of;
using testing::taken_by;

constexpr int64_t kMuch = 4 << 20;

std::string repeated(const std::string& text, int64_t size) {
  std::string all;
  all.reserve(static_cast<size_t>(size) + text.size());
  while (static_cast<int64_t>(all.size()) < size) all += text;
  return all;
}

// `count` keys, each with the value, between what is before and after; each key has its number.
std::string numbered(const std::string& before, const std::string& value, const std::string& after, int64_t count) {
  std::string text = before;
  for (int64_t i = 0; i < count; ++i) text += fmt::format("{}\"{:x}\":{}", i == 0 ? "" : ",", i, value);
  return text + after;
}

struct Hostile {
  const char* what;
  std::string text;
  double most;  // times the size of the text
};

// A rule and its readers: each refuses, or takes, the text with that much memory.
void expect_bounded(const std::vector<Hostile>& texts, const std::function<void(const std::string&)>& read) {
  for (const Hostile& hostile : texts) {
    const int64_t bytes = taken_by([&] { status_of([&] { read(hostile.text); }); }).bytes;
    const double times = static_cast<double>(bytes) / static_cast<double>(hostile.text.size());
    fmt::print("{:40} {:>9} bytes: {:.2f}\n", hostile.what, hostile.text.size(), times);
    EXPECT_LE(times, hostile.most) << hostile.what;
  }
}

constexpr const char* kEmpty = R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
constexpr double kNothing = 0.01;

TEST(StoreMemory, OfHeadersIsAFewTimesTheirSize) {
  const std::string a = repeated("a", kMuch);
  const std::vector<Hostile> texts = {
      {"zeros", '{' + std::string(kMuch, '\0'), kNothing},
      {"no map", '[' + repeated("1,", kMuch), kNothing},
      {"wrong at the begin", R"({"w":1,)" + a, kNothing},
      {"a wrong dtype, then much", R"({"w":{"dtype":"Q7",)" + a, kNothing},
      {"blanks", '{' + std::string(kMuch, ' '), 4},
      {"blanks behind the map", "{}" + std::string(kMuch, ' '), 4},
      {"a long name", R"({")" + a + R"(":)" + kEmpty + "}", 6},
      {"a long name that does not end", R"({")" + a, 8},
      {"a long name with a control character", R"({")" + a + "\x01\":1}", kNothing},
      {"a long name that is not UTF-8", R"({")" + a + "\xFF\":1}", kNothing},
      {"a long name with a wrong escape", R"({")" + a + R"(\q":1})", kNothing},
      {"a long name with half a character", R"({")" + a + R"(\ud800":1})", 12},
      {"a long field", R"({"w":{")" + a + R"(":1}})", 6},
      {"a long dtype", R"({"w":{"dtype":")" + a + R"("}})", 6},
      {"a long number", R"({"w":{"dtype":"F32","shape":[)" + repeated("1", kMuch) + "]}}", 6},
      {"a long text of metadata", R"({"__metadata__":{"a":")" + a + R"("}})", 6},
      {"many dims", R"({"w":{"dtype":"F32","shape":[)" + repeated("1,", kMuch), kNothing},
      {"deep lists", R"({"w":)" + repeated("[", kMuch), kNothing},
      {"deep maps", repeated(R"({"a":)", kMuch), kNothing},
      {"entries", numbered("{", kEmpty, "}", 40'000), 1},
      {"one entry again and again", "{" + repeated(std::string(R"("w":)") + kEmpty + ",", kMuch) + "}", 1},
      {"keys of metadata", numbered(R"({"__metadata__":{)", R"("")", "}}", 300'000), 3},
      {"one key of metadata", R"({"__metadata__":{)" + repeated(R"("k":"",)", kMuch) + "}}", 4},
  };
  expect_bounded(texts, [](const std::string& text) { parse_header(text, 0, "f", [](const StoredTensor&) {}); });
}

TEST(StoreMemory, OfIndexesIsAFewTimesTheirSize) {
  const std::string a = repeated("a", kMuch);
  const auto index = [](const std::string& rest) { return R"({"version":1,)" + rest; };
  const std::vector<Hostile> texts = {
      {"blanks", index(std::string(kMuch, ' ')), 4},
      {"an unknown field", index(R"(")" + a + R"(":1})"), 8},
      {"a long text in the tree", index(R"("value":")" + a + R"("})"), 12},
      {"deep lists", index(R"("value":)" + repeated("[", kMuch)), kNothing},
      {"entries without fields", numbered(index(R"("entries":{)"), "{}", "}}", 100'000), 4},
      {"headers", numbered(index(R"("headers":{)"), "1", "}}", 200'000), 8},
      {"one header again and again", index(R"("headers":{)" + repeated(R"("a":1,)", kMuch) + "}}"), 4},
  };
  expect_bounded(texts, [](const std::string& text) { read_index(text, "f"); });
}

TEST(StoreMemory, OfWeightMapsIsAFewTimesTheirSize) {
  const std::vector<Hostile> texts = {
      {"blanks", "{" + std::string(kMuch, ' '), 4},
      {"a long key", R"({")" + repeated("a", kMuch) + R"(":1})", 6},
      {"entries of one file", numbered(R"({"weight_map":{)", R"("x")", "}}", 200'000), 4},
      {"deep lists", R"({"a":)" + repeated("[", kMuch), kNothing},
  };
  expect_bounded(texts, [](const std::string& text) { read_weight_map(text, "f"); });
}

}  // namespace
}  // namespace distag::store
