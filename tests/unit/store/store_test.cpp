// Headers and indexes of checkpoints: pure texts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "store/index.h"
#include "support/expect.h"

namespace distag::store {
namespace {

using testing::status_of;

std::vector<StoredTensor> parsed(const std::string& json, uint64_t size) { return parse_header(json, size, "f"); }

TEST(Safetensors, HeadersComeBackAndBeginDataAtAMultipleOfEight) {
  std::vector<StoredTensor> tensors{
      {"w", Dtype::kFloat32, {2, 3}}, {"b", Dtype::kBool, {}}, {"e", Dtype::kInt64, {0, 4}}};
  const std::string text = print_header(tensors);
  EXPECT_EQ(text.size() % 8, 0U);
  const uint64_t size = header_size(reinterpret_cast<const std::byte*>(text.data()), text.size() + 25, "f");
  EXPECT_EQ(size, text.size() - 8);
  const auto found = parse_header(std::string_view(text).substr(8), 25, "f");
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
  const std::string half = R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})";
  EXPECT_EQ(status_of([&] { parsed(half, 4); }), Status::kUnsupported);
  const uint64_t large = kMostHeader + 1;
  EXPECT_EQ(status_of([&] { header_size(reinterpret_cast<const std::byte*>(&large), large + 8, "f"); }),
            Status::kProtocol);
  const uint64_t longer = 100;
  EXPECT_EQ(status_of([&] { header_size(reinterpret_cast<const std::byte*>(&longer), 107, "f"); }), Status::kProtocol);
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
    return Tensor::scalar(Dtype::kFloat64, 1);
  });
  EXPECT_EQ(print_tree(back, [](const std::string&, const Tensor&) {}), tree);
  const Value::List& list = back.find("list")->as_list();
  EXPECT_EQ(list[0].as_int64(), INT64_MIN);
  EXPECT_EQ(list[1].as_float64(), 0.1);
  EXPECT_EQ(list[2].kind(), ValueKind::kFloat64);
  EXPECT_EQ(list[5].as_float64(), HUGE_VAL);
  EXPECT_EQ(back.find("raw")->as_bytes().size(), 2U);
}

Index some_index() {
  Index index;
  index.id = "0123";
  index.mesh = "x=2";
  index.tree = R"({"tensor":"w"})";
  index.entries["w"] = {
      Dtype::kFloat32,
      {3, 2},
      "('x', None)",
      {{{0, 0}, {2, 2}, "a.safetensors", "w[0:2, 0:2]", {7}}, {{2, 0}, {1, 2}, "b.safetensors", "w[2:3, 0:2]", {8}}}};
  index.header_sums = {{"a.safetensors", 1}, {"b.safetensors", 2}};
  return index;
}

TEST(Indexes, ComeBackEqual) {
  const std::string text = print_index(some_index());
  EXPECT_EQ(print_index(parse_index(text, "f")), text);
  EXPECT_EQ(name_of_part("w", {3, 2}, {2, 0}, {1, 2}), "w[2:3, 0:2]");
  EXPECT_EQ(name_of_part("w", {3, 2}, {0, 0}, {3, 2}), "w");
}

TEST(Indexes, EveryChangedOrMissingByteIsNoticed) {
  const std::string text = print_index(some_index());
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
  auto refused = [](const std::function<void(Index&)>& change) {
    Index index = some_index();
    change(index);
    return status_of([&] { parse_index(print_index(index), "f"); });
  };
  EXPECT_EQ(refused([](Index&) {}), Status::kOk);
  EXPECT_EQ(refused([](Index& i) { i.entries["w"].boxes[0].file = "../a"; }), Status::kProtocol);
  EXPECT_EQ(refused([](Index& i) { i.entries["w"].boxes[0].file = "d/a"; }), Status::kProtocol);
  EXPECT_EQ(refused([](Index& i) { i.entries["w"].boxes[0].file = ""; }), Status::kProtocol);
  EXPECT_EQ(refused([](Index& i) { i.entries["w"].boxes.pop_back(); }), Status::kProtocol);
  EXPECT_EQ(refused([](Index& i) { i.entries["w"].boxes[1].offset = {1, 0}; }), Status::kProtocol);
  EXPECT_EQ(refused([](Index& i) { i.entries["w"].boxes[1].offset = {3, 0}; }), Status::kProtocol);
  EXPECT_EQ(refused([](Index& i) { i.entries["w"].boxes[1].extent = {1}; }), Status::kProtocol);
  EXPECT_EQ(refused([](Index& i) { i.entries["w"].boxes[1].pieces = {1, 2}; }), Status::kProtocol);
  EXPECT_EQ(refused([](Index& i) { i.entries["w"].shape = {INT64_MAX, INT64_MAX}; }), Status::kProtocol);
}

}  // namespace
}  // namespace distag::store
