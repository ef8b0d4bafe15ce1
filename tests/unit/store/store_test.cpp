// Headers and indexes of checkpoints: pure texts.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "store/index_reader.h"
#include "store/tree.h"
#include "support/expect.h"

namespace distag::store {
namespace {

using testing::failure_of;
using testing::status_of;

std::vector<StoredTensor> parsed(std::string_view json, uint64_t size) {
  std::vector<StoredTensor> tensors;
  parse_header(json, size, "f", [&](const StoredTensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

TEST(Safetensors, HeadersComeBackAndBeginDataAtAMultipleOfEight) {
  std::vector<StoredTensor> tensors{
      {"w", Dtype::kFloat32, {2, 3}}, {"b", Dtype::kBool, {}}, {"e", Dtype::kInt64, {0, 4}}};
  const std::string text = print_header(tensors);
  EXPECT_EQ(text.size() % 8, 0U);
  const uint64_t size = header_size(reinterpret_cast<const std::byte*>(text.data()), text.size() + 25, "f");
  EXPECT_EQ(size, text.size() - 8);
  const auto found = parsed(std::string_view(text).substr(8), 25);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].name, "w");
  EXPECT_EQ(found[0].shape, (Dims{2, 3}));
  EXPECT_EQ(found[1].begin, 24U);
  EXPECT_EQ(found[1].dtype, Dtype::kBool);
  EXPECT_EQ(found[2].size(), 0U);
}

TEST(Safetensors, HostileHeadersAreRefused) {
  const std::string good = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(parsed(good, 8).size(), 1U);
  for (
      const char* bad :
      {"", "{", "[]", "null", R"({"w":1})", R"({"w":{"dtype":"F32","shape":[2]}})",
       R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})",
       R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
       R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
       R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
       R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
       R"({"w":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})",
       R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"v":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       R"({"w":{"dtype":"Q7","shape":[2],"data_offsets":[0,8]}})",
       R"({"w":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})"}) {
    EXPECT_EQ(status_of([&] { parsed(bad, 8); }), Status::kProtocol) << bad;
  }
  EXPECT_EQ(status_of([&] { parsed(good, 9); }), Status::kProtocol);
  EXPECT_EQ(status_of([&] { parsed(std::string(200, '['), 8); }), Status::kProtocol);
  const uint64_t large = kMostHeader + 1;
  EXPECT_EQ(status_of([&] { header_size(reinterpret_cast<const std::byte*>(&large), large + 8, "f"); }),
            Status::kProtocol);
  const uint64_t longer = 100;
  EXPECT_EQ(status_of([&] { header_size(reinterpret_cast<const std::byte*>(&longer), 107, "f"); }), Status::kProtocol);
}

constexpr const char* kGood = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST(Safetensors, WhatOtherReadersWouldPassOverIsRefused) {
  const std::string good = kGood;
  EXPECT_EQ(parsed(good + "  ", 8).size(), 1U);
  EXPECT_EQ(status_of([&] { parsed(" " + good, 8); }), Status::kProtocol);
  EXPECT_EQ(status_of([&] { parsed("\n" + good, 8); }), Status::kProtocol);
  EXPECT_EQ(status_of([&] { parsed("\xEF\xBB\xBF" + good, 8); }), Status::kProtocol);
  EXPECT_EQ(status_of([&] { parsed(good + '\0', 8); }), Status::kProtocol);
  EXPECT_EQ(status_of([&] { parsed(good + std::string("\0more", 5), 8); }), Status::kProtocol);
  EXPECT_EQ(status_of([&] { parsed(good + "}", 8); }), Status::kProtocol);
}

TEST(Safetensors, EntriesOfOtherDtypesKeepTheirPlaces) {
  std::vector<StoredTensor> found = parsed(R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                                           R"("f":{"dtype":"F4","shape":[2,3],"data_offsets":[4,7]},)"
                                           R"("b":{"dtype":"BOOL","shape":[],"data_offsets":[7,8]}})",
                                           8);
  ASSERT_EQ(found.size(), 3U);
  ASSERT_NE(found[0].other, nullptr);
  EXPECT_STREQ(found[0].other->name, "BF16");
  EXPECT_EQ(found[0].size(), 4U);
  EXPECT_EQ(found[1].size(), 3U);
  EXPECT_EQ(found[2].other, nullptr);
  const std::string printed = print_header(found).substr(8);
  EXPECT_EQ(parsed(printed, 8)[1].other, found[1].other);
  for (const char* bad : {R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,8]}})",
                          R"({"w":{"dtype":"F4","shape":[15],"data_offsets":[0,8]}})",
                          R"({"w":{"dtype":"C64","shape":[4611686018427387904],"data_offsets":[0,8]}})"}) {
    EXPECT_EQ(status_of([&] { parsed(bad, 8); }), Status::kProtocol) << bad;
  }
}

TEST(Safetensors, MetadataAreAMapOfTexts) {
  auto with = [](const std::string& metadata) {
    return R"({"__metadata__":)" + metadata + R"(,"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  };
  EXPECT_EQ(parsed(with(R"({"format":"pt","a":"b"})"), 8).size(), 1U);
  EXPECT_EQ(parsed(with("{}"), 8).size(), 1U);
  for (const char* bad :
       {"1", "[]", "\"\"", R"({"a":1})", R"({"a":{}})", R"({"a":"b","c":"d","a":"e"})", R"({},"__metadata__":{})"}) {
    EXPECT_EQ(status_of([&] { parsed(with(bad), 8); }), Status::kProtocol) << bad;
  }
}

TEST(Safetensors, NothingIsReadBehindTheFirstWrongByte) {
  // The end of each is wrong in another way, which nothing comes to.
  const std::string entry = R"({"w":{"dtype":"F32","shape":[2],)";
  EXPECT_NE(failure_of([&] { parsed(entry + R"("data_offsets":[0,9]},"v" %)", 8); }).find("size of its shape"),
            std::string::npos);
  EXPECT_NE(failure_of([&] { parsed(entry + R"("data_offsets":[8,16]},"v" %)", 8); }).find("behind the end"),
            std::string::npos);
  EXPECT_NE(failure_of([&] { parsed(entry + R"("more":%)", 8); }).find("other fields"), std::string::npos);
  EXPECT_NE(failure_of([&] { parsed(entry + R"("shape":%)", 8); }).find("field twice"), std::string::npos);
  EXPECT_NE(failure_of([&] { parsed(R"({"w":[%)", 8); }).find("other fields"), std::string::npos);
  EXPECT_NE(failure_of([&] { parsed(R"({"w\u0000":%)", 8); }).find("zero byte"), std::string::npos);
  EXPECT_NE(failure_of([&] { parsed(R"({"w" %)", 8); }).find("at byte 6"), std::string::npos);
}

TEST(Safetensors, EntriesLieInTheOrderInWhichTheyAreGiven) {
  std::vector<StoredTensor> tensors{{"z", Dtype::kFloat64, {2}}, {"a\"/~", Dtype::kFloat32, {}}};
  std::string text = print_header(tensors).substr(8);
  text.resize(text.find_last_not_of(' ') + 1);
  EXPECT_EQ(
      text,
      R"({"__metadata__":{"format":"pt","writer":"distag"},"z":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
      R"("a\"/~":{"dtype":"F32","shape":[],"data_offsets":[16,20]}})");
}

// Forty thousand took minutes when each entry was looked at once for every other.
TEST(Safetensors, ManyEntriesAreReadInOnePass) {
  constexpr size_t kCount = 40'000;
  std::vector<StoredTensor> tensors;
  for (size_t i = 0; i < kCount; ++i) tensors.push_back({fmt::format("layer.{}.weight", i), Dtype::kFloat32, {1}});
  std::string text = print_header(tensors);
  const auto begin = std::chrono::steady_clock::now();
  const auto found = parsed(std::string_view(text).substr(8), kCount * 4);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
  ASSERT_EQ(found.size(), kCount);
  EXPECT_EQ(found.back().name, "layer.39999.weight");
  const size_t last = text.rfind("39999");
  text.replace(last, 5, "39998");
  EXPECT_NE(failure_of([&] { parsed(text.substr(8), kCount * 4); }).find("is there twice"), std::string::npos);
}

TEST(Json, KeysThatAreThereTwiceAreRefused) {
  const auto make = [](const std::string&) { return Value(Tensor::scalar(Dtype::kFloat64, 1)); };
  EXPECT_EQ(parse_tree(R"({"map":{"a":[1,{"map":{}},[]],"b":2}})", "f", make).find("a")->as_list().size(), 3U);
  for (const std::string bad :
       {R"({"map":{"a":1,"b":2,"a":3}})", R"({"map":{"a":1},"map":{"a":1}})", "", "[1,]", "[1]]", "\xEF\xBB\xBF[1]"}) {
    EXPECT_EQ(status_of([&] { parse_tree(bad, "f", make); }), Status::kProtocol) << bad;
  }
  EXPECT_EQ(status_of([&] { parse_tree(std::string("[1]\0", 4), "f", make); }), Status::kProtocol);
  const std::string deep = std::string(41, '[') + std::string(41, ']');
  EXPECT_NE(failure_of([&] { parse_tree(deep, "f", make); }).find("nested deeper than 40"), std::string::npos);
}

TEST(Crc32, IsThatOfZlib) { EXPECT_EQ(crc32_of(0, "123456789", 9), 0xCBF43926U); }

Value some_value() {
  return Value::map({{"a/b~", Value(Tensor::scalar(Dtype::kFloat64, 1))},
                     {"list", Value::list({Value(int64_t{INT64_MIN}), Value(0.1), Value(1.0), Value(true), Value(),
                                           Value(HUGE_VAL), Value::text("x\"\n")})},
                     {"raw", Value::bytes({std::byte{0}, std::byte{255}})}});
}

TEST(Trees, ComeBackEqual) {
  std::vector<std::string> paths;
  const std::string tree =
      print_tree(some_value(), [&](const std::string& path, const Tensor&) { paths.push_back(path); });
  EXPECT_EQ(paths, (std::vector<std::string>{"a~1b~0"}));
  const Value back = parse_tree(tree, "f", [](const std::string& path) {
    EXPECT_EQ(path, "a~1b~0");
    return Value(Tensor::scalar(Dtype::kFloat64, 1));
  });
  EXPECT_EQ(print_tree(back, [](const std::string&, const Tensor&) {}), tree);
  const Value::List& list = back.find("list")->as_list();
  EXPECT_EQ(list[0].as_int64(), INT64_MIN);
  EXPECT_EQ(list[1].as_float64(), 0.1);
  EXPECT_EQ(list[2].kind(), ValueKind::kFloat64);
  EXPECT_EQ(list[5].as_float64(), HUGE_VAL);
  EXPECT_EQ(back.find("raw")->as_bytes().size(), 2U);
}

TEST(Trees, TellTheirEntriesByPath) {
  const Value value = Value::map({{"list", Value::list({Value(int64_t{1}), Value::text("a\nb")})},
                                  {"map", Value::map({{"map", Value()}})},
                                  {"w/0", Value(Tensor::empty(Dtype::kFloat32, {2}))}});
  const std::map<std::string, std::string> expected{{"", "a map"},
                                                    {"list", "a list"},
                                                    {"list/0", "1"},
                                                    {"list/1", R"("a\nb")"},
                                                    {"map", "a map"},
                                                    {"map/map", "null"},
                                                    {"w~10", R"({"tensor":"w~10"})"}};
  EXPECT_EQ(entries_of_tree(print_tree(value, [](const std::string&, const Tensor&) {})), expected);
}

TEST(Trees, TwoPathsAlikeAreRefused) {
  const Value x(Tensor::scalar(Dtype::kFloat64, 1));
  const auto print = [](const Value& value) {
    return status_of([&] { print_tree(value, [](const std::string&, const Tensor&) {}); });
  };
  EXPECT_EQ(print(Value::map({{"", Value::map({{"a", x}})}, {"a", x}})), Status::kInvalidArgument);
  EXPECT_EQ(print(Value::map({{"", Value::map({{"a", x}})}, {"b", x}})), Status::kOk);
  EXPECT_EQ(print(Value::map({{"", x}, {"a/b", x}, {"a", Value::map({{"b", x}, {"", x}})}})), Status::kOk);
}

// An index of one tensor, to be changed.
struct Box {
  Dims offset;
  Dims extent;
  std::string file;
  std::string name;
  std::vector<uint32_t> pieces = {};
};
struct Sketch {
  std::string tree = R"({"tensor":"w"})";
  Dims shape = {3, 2};
  std::vector<Box> boxes = {{{0, 0}, {2, 2}, "a.safetensors", "w[0:2, 0:2]", {7}},
                            {{2, 0}, {1, 2}, "b.safetensors", "w[2:3, 0:2]", {8}}};
  std::vector<std::string> paths = {"w"};  // of tensors alike
};

std::string text_of(const Sketch& sketch) {
  Index index;
  index.id = "0123";
  index.mesh = "x=2";
  index.tree = sketch.tree;
  index.files = {{"a.safetensors", 1}, {"b.safetensors", 2}};
  std::vector<StoredBox> boxes;
  for (const Box& box : sketch.boxes) {
    const StoredFile& file = *index.files.try_emplace(box.file).first;
    boxes.push_back({box.offset, box.extent, box.name, box.pieces, &file});
  }
  for (const std::string& path : sketch.paths) {
    index.add({path, sketch.shape, "('x', None)", boxes, Dtype::kFloat32});
  }
  index.sort();
  return print_index(index);
}

TEST(Indexes, ComeBackEqual) {
  const std::string text = text_of(Sketch());
  EXPECT_EQ(print_index(parse_index(text, "f")), text);
  EXPECT_EQ(name_of_part("w", {3, 2}, {2, 0}, {1, 2}), "w[2:3, 0:2]");
  EXPECT_EQ(name_of_part("w", {3, 2}, {0, 0}, {3, 2}), "w");
}

TEST(Indexes, EveryChangedOrMissingByteIsNoticed) {
  const std::string text = text_of(Sketch());
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(status_of([&] { parse_index(text.substr(0, i), "f"); }), Status::kProtocol) << i;
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      EXPECT_EQ(status_of([&] { parse_index(changed, "f"); }), Status::kProtocol) << i << " " << bit;
    }
  }
}

TEST(Indexes, HostileOnesAreRefused) {
  auto refused = [](const std::function<void(Sketch&)>& change) {
    Sketch sketch;
    change(sketch);
    return status_of([&] { parse_index(text_of(sketch), "f"); });
  };
  EXPECT_EQ(refused([](Sketch&) {}), Status::kOk);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes[0].file = "../a"; }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes[0].file = "d/a"; }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes[0].file = ""; }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes[0].file = ".."; }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes.pop_back(); }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes[1].offset = {1, 0}; }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes[1].offset = {3, 0}; }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes[1].extent = {1}; }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes[1].pieces = {1, 2}; }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes.push_back(s.boxes[0]); }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.boxes.clear(); }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.shape = {INT64_MAX, INT64_MAX}; }), Status::kProtocol);
  EXPECT_EQ(refused([](Sketch& s) { s.paths = {"v", "w", "x"}; }), Status::kOk);
  EXPECT_EQ(refused([](Sketch& s) { s.paths = {"w", "v", "w"}; }), Status::kProtocol);
}

// With the crc of what it has.
std::string sealed(const std::string& text) {
  return text + fmt::format(",\"crc32\":\"{:08x}\"}}", crc32_of(0, text.data(), text.size()));
}

std::string failure_of_index(const std::string& text) {
  return failure_of([&] { parse_index(sealed(text), "f"); });
}

TEST(Indexes, NothingIsReadBehindTheFirstWrongByte) {
  const auto after = [](const std::string& begin) {  // what follows is no JSON for the one that comes to it
    return failure_of_index(R"({"version":1,)" + begin);
  };
  const std::string entry = R"("entries":{"w":{"dtype":"F32","shape":[2],)";
  const std::pair<std::string, const char*> wrong[] = {
      {R"("id":7,"mesh":"m")", "another kind"},
      {R"("id":"a","id":"b")", "\"id\" is there twice"},
      {R"("more":1)", "\"more\" is not known"},
      {R"("headers":{"a":-1})", "another kind"},
      {R"("headers":{"a":4294967296})", "another kind"},
      {R"("headers":{"a":1,"a":2})", "header is there twice"},
      {R"("entries":{"w":{},"w":{}})", "lacks a field"},
      {R"("entries":[])", "another kind"},
      {R"("entries":{"w":[]})", "entry \"w\" has a field of another kind"},
      {R"("entries":{"w":{"dtype":"F8"}})", "unknown dtype"},
      {R"("entries":{"w":{"shape":[-1]}})", "another kind"},
      {R"("entries":{"w":{"shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}})", "list of dims"},
      {R"("entries":{"w":{"shape":[[]]}})", "another kind"},
      {entry + R"("boxes":[[]]}})", "another kind"},
      {entry + R"("boxes":[{"crc32":[0.5]}]}})", "another kind"},
      {entry + R"("boxes":[{"file":"/a"}]}})", "folder in it"},
      {entry + R"("boxes":[{"file":"a"}]}})", "box that lacks a field"},
      {entry + R"("boxes":[]}})", "lacks a field"},
  };
  for (const auto& [text, words] : wrong) EXPECT_NE(after(text).find(words), std::string::npos) << text;
  EXPECT_NE(after(R"("value":1)").find("it lacks a field"), std::string::npos);
  EXPECT_EQ(status_of([&] { parse_index(sealed(R"({"version":2,"what":[{}])"), "f"); }), Status::kUnsupported);
  EXPECT_EQ(status_of([&] { parse_index(sealed(R"({"value":{"version":1})"), "f"); }), Status::kUnsupported);
}

TEST(Indexes, TreesOfEveryKindComeBackAsTheyWere) {
  for (const char* tree : {"1", "-7", "0.25", "null", "true", R"("a\"b\n")", "[]", R"({"map":{}})",
                           R"([1,[true,null],{"map":{"a":{"tensor":"w"},"b":[],"é":"[{:,"}}])"}) {
    Sketch sketch;
    sketch.tree = tree;
    EXPECT_EQ(parse_index(text_of(sketch), "f").tree, tree);
  }
  EXPECT_NE(failure_of_index(R"({"version":1,"value":)" + std::string(50, '[') + std::string(50, ']')).find("deeper"),
            std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which have memory of their own

int64_t memory_of(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (status >> word && word != name + ":") continue;
  status >> kib;
  return kib << 10;
}

// How much more memory the process has at its peak than before.
template <typename Body>
int64_t peak_of(Body&& body) {
  std::ofstream("/proc/self/clear_refs") << "5";
  const int64_t before = memory_of("VmRSS");
  body();
  return memory_of("VmHWM") - before;
}

TEST(Indexes, AreReadInAFewTimesTheMemoryOfTheirText) {
  std::string nested = R"({"version":1,"value":[)";
  for (int i = 0; i < 3'000'000; ++i) nested += "[],";
  nested = sealed(nested + "[]]");
  const int64_t of_nested = peak_of([&] { failure_of([&] { parse_index(nested, "f"); }); });
  EXPECT_LT(of_nested, 6 * static_cast<int64_t>(nested.size()));

  Sketch many;
  for (int i = 0; i < 50'000; ++i) many.paths.push_back(fmt::format("layer.{}.weight", i));
  const std::string text = text_of(many);
  Index read;
  const int64_t of_many = peak_of([&] { read = parse_index(text, "f"); });
  EXPECT_EQ(read.entries.size(), 50'001U);
  EXPECT_LT(of_many, 10 * static_cast<int64_t>(text.size()));
}

#endif

TEST(WeightMaps, NameEachFileOnce) {
  const auto files = [](const std::string& text) { return read_weight_map(text, "f").files; };
  const WeightMap map = read_weight_map(R"({"metadata":{"weight_map":1},"weight_map":{"a":"y","b":"x","c":"y"}})", "f");
  EXPECT_EQ(map.files, (std::set<std::string>{"x", "y"}));
  ASSERT_EQ(map.entries.size(), 3U);
  std::string all;
  for (const auto& [name, of] : map.entries) all += std::string(name) + *of;
  EXPECT_EQ(all, "aybxcy");
  EXPECT_EQ(files(R"({"weight_map":{}})").size(), 0U);
  for (const char* bad : {"[]", "1", "{}", R"({"weight_map":[]})", R"({"weight_map":1})", R"({"weight_map":{"a":1}})",
                          R"({"weight_map":{"a":{}}})", R"({"weight_map":{"a":"../x"}})", R"({"weight_map":{"a":""}})",
                          R"({"weight_map":{"a":"x","a":"x"}})", R"({"weight_map":{},"weight_map":{}})"}) {
    EXPECT_EQ(status_of([&] { files(bad); }), Status::kProtocol) << bad;
  }
}

// A tensor of n by n elements, a box for each.
Sketch sketch_of_cells(int64_t n) {
  Sketch sketch;
  sketch.shape = {n, n};
  sketch.boxes.clear();
  for (int64_t i = 0; i < n * n; ++i) {
    sketch.boxes.push_back({{i / n, i % n}, {1, 1}, "a.safetensors", fmt::format("w[{}]", i)});
  }
  return sketch;
}

TEST(Indexes, AGridOfAsManyBoxesAsAMeshHasMembersIsRead) {
  const Sketch sketch = sketch_of_cells(64);
  EXPECT_EQ(parse_index(text_of(sketch), "f").find("w")->boxes.size(), 4096U);
  auto refused = [&](const std::function<void(std::vector<Box>&)>& change) {
    Sketch changed = sketch;
    change(changed.boxes);
    return failure_of([&] { parse_index(text_of(changed), "f"); });
  };
  EXPECT_NE(refused([](auto& boxes) { boxes.erase(boxes.begin() + 77); }).find("lacks an element"), std::string::npos);
  EXPECT_NE(refused([](auto& boxes) { boxes[77] = boxes[78]; }).find("an element twice"), std::string::npos);
  EXPECT_NE(refused([](auto& boxes) { boxes[77].extent = {1, 2}; }).find("an element twice"), std::string::npos);
  EXPECT_NE(refused([](auto& boxes) { boxes.resize(64 * 63); }).find("lacks an element"), std::string::npos);
}

TEST(Indexes, FilesOfOthersHaveNamesWithSlashes) {
  Index index;
  const StoredFile& file = *index.files.try_emplace("f.safetensors").first;
  index.add({"c", Dtype::kInt64, {}}, file, 108);
  index.add({"a/b~", Dtype::kFloat32, {2}}, file, 100);
  EXPECT_EQ(index.sort(), nullptr);
  const auto make = [](const StoredEntry& entry) { return Value(Tensor::empty(entry.dtype, Dims(entry.shape))); };
  const Value value = value_of(index, "f", make);
  ASSERT_EQ(value.find("a/b~")->as_tensor().shape(), (Dims{2}));
  std::vector<std::string> paths;  // by which a load into such a map finds its entries
  const std::string tree = print_tree(value, [&](const std::string& path, const Tensor&) { paths.push_back(path); });
  EXPECT_EQ(paths, (std::vector<std::string>{"a~1b~0", "c"}));
  EXPECT_EQ(index.find("a~1b~0")->boxes[0].name, "a/b~");
  const Index back = parse_index(print_index(index), "f");
  EXPECT_EQ(print_index(back), print_index(index));
  EXPECT_EQ(back.tree, tree);
  EXPECT_EQ(print_tree(value_of(back, "f", make), [](const std::string&, const Tensor&) {}), tree);
  EXPECT_EQ(parse_index(print_index(Index()), "f").tree, R"({"map":{}})");
  index.add({"c", Dtype::kInt64, {}}, *index.files.try_emplace("g.safetensors").first, 100);
  EXPECT_EQ(index.sort()->path, "c");
}

TEST(Indexes, TheirVersionIsThatOfTheOutermostMap) {
  const std::string text = R"({"version":2,"value":{"map":{"version":1}})";
  EXPECT_EQ(status_of([&] { parse_index(sealed(text), "f"); }), Status::kUnsupported);
}

}  // namespace
}  // namespace distag::store
