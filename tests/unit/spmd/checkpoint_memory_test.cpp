// Memory and work that checkpoints of many tensors take: a few times the text that names the tensors, and linear in it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "spmd/checkpoint.h"
#include "spmd/checkpoint_files.h"
#include "store/index.h"
#include "support/counted_memory.h"
#include "support/expect.h"

namespace distag::spmd {
namespace {

using testing::failure_of;
using testing::taken_by;

constexpr const char* kShard = "shard-0123456789abcdef-00000-of-00001.safetensors";
constexpr int kCounts[] = {10'000, 40'000, 160'000};

class CheckpointMemoryTest : public ::testing::Test {
 protected:
  CheckpointMemoryTest() {
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
  }
  ~CheckpointMemoryTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  static std::vector<store::StoredTensor> tensors_of(int count) {
    std::vector<store::StoredTensor> tensors;
    for (int i = 0; i < count; ++i) {
      tensors.push_back({fmt::format("model.layers.{:06}.mlp.weight", i), Dtype::kFloat32, {1, 2}});
    }
    return tensors;
  }
  // Gives the size of the header.
  size_t write_file(const std::string& name, int count) const {
    std::vector<store::StoredTensor> tensors = tensors_of(count);
    const std::string header = store::print_header(tensors);
    write(name, header + std::string(static_cast<size_t>(count) * 8, '\0'));
    return header.size();
  }
  // As a mesh of one member saves it. Gives the size of the index.
  size_t write_checkpoint(int count) const {
    std::vector<store::StoredTensor> tensors = tensors_of(count);
    const std::string header = store::print_header(tensors);
    store::Index index;
    const store::StoredFile& file =
        *index.files.emplace(kShard, store::crc32_of(0, header.data(), header.size())).first;
    const char zeros[8] = {};
    const Dims first{0, 0};
    const std::vector<uint32_t> sums{store::crc32_of(0, zeros, sizeof zeros)};
    for (const store::StoredTensor& tensor : tensors) {
      store::StoredBox box{first, tensor.shape, tensor.name, sums, &file};
      index.add({tensor.name, tensor.shape, "(None, None)", {&box, 1}, tensor.dtype});
    }
    index.sort();
    const std::string text = store::print_index(index);
    write(kShard, header + std::string(static_cast<size_t>(count) * 8, '\0'));
    write(store::kIndexName, text);
    return text.size();
  }

  // A row of the table for each size: of `write` comes the size of the text, of `run` the memory.
  void expect_few(const char* what, double most, const std::function<size_t(int)>& write_text,
                  const std::function<void()>& run) const {
    int64_t before = 0;
    for (const int count : kCounts) {
      const auto size = static_cast<double>(write_text(count));
      const auto [bytes, allocations] = taken_by(run);
      fmt::print("{:24} {:>7} tensors, {:>5.1f} MB of text: {:.2f} times that, {:.2f} allocations a tensor\n", what,
                 count, size / 1e6, static_cast<double>(bytes) / size, static_cast<double>(allocations) / count);
      EXPECT_LE(static_cast<double>(bytes), most * size) << what;
      EXPECT_TRUE(before == 0 || allocations <= before * 41 / 10) << what << ": more than linear work";
      before = allocations;
    }
  }

  std::string folder_ = (std::filesystem::temp_directory_path() / "distag-memory-XXXXXX").string();
};

TEST_F(CheckpointMemoryTest, OfReadersIsAFewTimesTheirText) {
  std::string text;
  const auto header_of = [&](int count) {
    std::vector<store::StoredTensor> tensors = tensors_of(count);
    text = store::print_header(tensors).substr(8);
    return text.size();
  };
  uint64_t size = 0;
  expect_few("a header", 2, header_of, [&] {
    size = 0;
    failure_of([&] {
      store::parse_header(text, UINT64_MAX, "f", [&](const store::StoredTensor& tensor) { size += tensor.size(); });
    });
  });
  EXPECT_EQ(size, 8u * 160'000);
  const auto index_of = [&](int count) {
    const size_t size_of_text = write_checkpoint(count);
    std::ifstream file(folder_ + "/" + store::kIndexName, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
    return size_of_text;
  };
  size_t entries = 0;
  expect_few("an index", 3, index_of, [&] { entries = store::parse_index(text, "f").entries.size(); });
  EXPECT_EQ(entries, 160'000u);
}

TEST_F(CheckpointMemoryTest, OfChecksIsAFewTimesTheTextThatTheyRead) {
  const auto check = [&] { EXPECT_EQ(failure_of([&] { check_checkpoint(folder_); }), "no failure"); };
  expect_few(
      "check, of others", 5, [&](int count) { return write_file("model.safetensors", count); }, check);
  expect_few(
      "check", 4, [&](int count) { return write_checkpoint(count); }, check);
}

// The deferred tensors of a load are more than their names.
TEST_F(CheckpointMemoryTest, OfLoadsIsAFewTimesThatOfTheirTensors) {
  const auto load = [&] { load_checkpoint_alone(folder_, Value()); };
  expect_few(
      "load, of others", 12, [&](int count) { return write_file("model.safetensors", count); }, load);
  expect_few(
      "load", 6, [&](int count) { return write_checkpoint(count); }, load);
}

TEST_F(CheckpointMemoryTest, OfAHeaderThatLiesIsBoundedByItsSize) {
  std::string header = "{";
  for (int i = 0; header.size() < 99'000'000; ++i) {
    header += fmt::format(R"("{:x}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}},)", i);
  }
  const auto times_for = [&](const std::string& text, const char* words) {
    const uint64_t size = text.size();
    write("model.safetensors", std::string(reinterpret_cast<const char*>(&size), sizeof size) + text);
    std::string failure;
    const int64_t bytes = taken_by([&] { failure = failure_of([&] { check_checkpoint(folder_); }); }).bytes;
    EXPECT_NE(failure.find(words), std::string::npos) << failure;
    const double times = static_cast<double>(bytes) / static_cast<double>(size);
    fmt::print("{:.1f} MB, {}: {:.2f} times that\n", static_cast<double>(size) / 1e6, words, times);
    return times;
  };
  EXPECT_LE(times_for(header + R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "behind the end"), 6);
  EXPECT_LE(times_for("{1," + header.substr(1) + "}", "no JSON at byte 2"), 1.1);
}

}  // namespace
}  // namespace distag::spmd
