// Checkpoints of a mesh, as its members, others and one process load them; and files that were changed meanwhile.
#include "spmd/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "base/random.h"
#include "spmd/checkpoint_files.h"
#include "spmd/marking.h"
#include "spmd/mesh_group.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "store/safetensors.h"
#include "support/expect.h"
#include "support/tensors.h"
#include "tensor/access.h"
#include "tensor/deferred.h"

namespace distag::testing {
namespace {

using spmd::load_checkpoint;
using spmd::load_checkpoint_alone;

Tensor counting(const Dims& shape, double first = 0) {
  Tensor tensor = Tensor::empty(Dtype::kFloat64, shape);
  std::iota(tensor.mutable_data_as<double>(), tensor.mutable_data_as<double>() + tensor.count(), first);
  return tensor;
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
  }
  ~CheckpointTest() override { std::filesystem::remove_all(folder_); }

  // On a mesh of 2 x 2: cut in both dims, unevenly; cut in one; repeated; a sum of parts; bools.
  void save_four() {
    MeshGroup group({2, 2});
    group.run([&](Member& member) {
      Tensor grid = counting({5, 7});
      Tensor rows = counting({6}, 100);
      spmd::mark_sharding(grid, member.line, "('x', 'y')", -1);
      spmd::mark_sharding(rows, member.line, "('y',)", -1);
      const Tensor sum = spmd::from_local(member.line, counting({2}, 1), "(None,) sum('x')", Dims{2}, std::nullopt);
      const Value value = Value::map({{"grid", Value(grid)},
                                      {"rows", Value(rows)},
                                      {"whole", Value(counting({3}, 7))},
                                      {"sum", Value(sum)},
                                      {"mask", Value(tensor_of<uint8_t>({3}, {1, 0, 1}))}});
      SeededRandom random(42);
      spmd::save_checkpoint(member.line, folder_, value, 0, random);
    });
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  // The file that has the elements of "mask", which lie at its end.
  std::string file_of_mask() const {
    for (const std::string& name : names()) {
      std::ifstream file(folder_ + "/" + name, std::ios::binary);
      const std::string text(std::istreambuf_iterator<char>(file), {});
      if (name.rfind("shard-", 0) == 0 && text.find("\"mask\"") != std::string::npos) return folder_ + "/" + name;
    }
    return "";
  }
  void put(const std::string& path, int64_t offset, char byte) const {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset, offset < 0 ? std::ios::end : std::ios::beg);
    file.put(byte);
  }
  std::string failure_of_load() const {
    return failure_of(
        [&] { load_checkpoint_alone(folder_, Value()).find("mask")->as_tensor().storage().make_elements(); });
  }

  std::string folder_ = (std::filesystem::temp_directory_path() / "distag-checkpoint-XXXXXX").string();
};

TEST_F(CheckpointTest, OneProcessLoadsWhatAMeshSaved) {
  save_four();
  Tensor grid = Tensor::empty(Dtype::kFloat64, {5, 7});
  const Value loaded = load_checkpoint_alone(folder_, Value::map({{"grid", Value(grid)}}));
  EXPECT_EQ(values_of<double>(grid), values_of<double>(counting({5, 7})));
  EXPECT_EQ(values_of<double>(loaded.find("rows")->as_tensor()), values_of<double>(counting({6}, 100)));
  EXPECT_EQ(values_of<double>(loaded.find("whole")->as_tensor()), values_of<double>(counting({3}, 7)));
  EXPECT_EQ(values_of<double>(loaded.find("sum")->as_tensor()), (std::vector<double>{2, 4}));
}

TEST_F(CheckpointTest, AnotherMeshLoadsPartsThatWereSavedOtherwise) {
  save_four();
  MeshGroup group({3});
  group.run([&](Member& member) {
    Tensor grid = counting({5, 7}, 1000);
    spmd::mark_sharding(grid, member.line, "(None, 'x')", -1);
    const Value loaded = load_checkpoint(member.line, folder_, Value::map({{"grid", Value(grid)}}), 0);
    EXPECT_EQ(values_of<double>(spmd::gather(grid, -1)), values_of<double>(counting({5, 7})));
    const Tensor rows = loaded.find("rows")->as_tensor();
    spmd::mark_sharding(rows, member.line, "('x',)", -1);
    EXPECT_EQ(values_of<double>(spmd::gather(rows, -1)), values_of<double>(counting({6}, 100)));
  });
}

// By how many bytes the process has at most more memory while it runs. nullopt where the system does not tell.
std::optional<int64_t> peak_of(const std::function<void()>& run) {
  const auto bytes_of = [](const std::string& key) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind(key, 0) == 0) return std::stoll(line.substr(key.size())) * 1024;
    }
    return -1LL;
  };
  const bool is_reset = static_cast<bool>(std::ofstream("/proc/self/clear_refs") << "5" << std::flush);
  const int64_t before = bytes_of("VmRSS:");
  run();
  const int64_t most = bytes_of("VmHWM:");
  if (!is_reset || before < 0 || most < 0) return std::nullopt;
  return most - before;
}

// Into a plain tensor, and into one that lies column after column.
TEST_F(CheckpointTest, ALoadIntoTensorsTakesNoMemoryForTheirElements) {
  if (!peak_of([] {})) GTEST_SKIP() << "/proc/self does not tell how much memory was taken";
  constexpr int64_t kRows = 2048;
  constexpr int64_t kColumns = 4096;
  const Tensor all = counting({kRows, kColumns});  // 64 MiB
  MeshGroup group({2});
  group.run([&](Member& member) {
    Tensor rows = all.clone();
    spmd::mark_sharding(rows, member.line, "('x', None)", -1);
    SeededRandom random(1);
    spmd::save_checkpoint(member.line, folder_, Value::map({{"w", Value(rows)}}), 0, random);
  });
  const auto load_into = [&](const Tensor& into) {
    std::memset(Tensor(into).mutable_data(), 1, 8);
    const auto peak = peak_of([&] { load_checkpoint_alone(folder_, Value::map({{"w", Value(into)}})); });
    EXPECT_LT(peak.value(), 8 << 20);
  };
  const Tensor into = all.clone();
  load_into(into);
  EXPECT_EQ(std::memcmp(into.hold().data(), all.data(), all.byte_size()), 0);
  const Tensor turned = Tensor::empty(Dtype::kFloat64, {kColumns, kRows}).view({kRows, kColumns}, {1, kRows}, 0);
  std::memset(Tensor(turned).mutable_data(), 0, turned.byte_size());
  load_into(turned);
  EXPECT_EQ(std::memcmp(turned.contiguous().data(), all.data(), all.byte_size()), 0);
}

TEST_F(CheckpointTest, PartsGoWhereTheyLieInMemory) {
  save_four();
  const Tensor wide = counting({8, 10}, 1000);
  const Tensor inside = wide.view({5, 7}, {10, 1}, 12);
  load_checkpoint_alone(folder_, Value::map({{"grid", Value(inside)}}));
  EXPECT_EQ(values_of<double>(inside.contiguous()), values_of<double>(counting({5, 7})));
  const std::vector<double> around = values_of<double>(wide);
  EXPECT_EQ(std::count_if(around.begin(), around.end(), [](double x) { return x >= 1000; }), 45);
  const Tensor turned = counting({7, 5}, 1000).view({5, 7}, {1, 5}, 0);
  load_checkpoint_alone(folder_, Value::map({{"grid", Value(turned)}}));
  EXPECT_EQ(values_of<double>(turned.contiguous()), values_of<double>(counting({5, 7})));
}

TEST_F(CheckpointTest, MembersThatSaveOtherValuesLearnIt) {
  MeshGroup group({2});
  const auto failures = group.try_run([&](Member& member) {
    SeededRandom random(1);
    const Value value = Value::map({{"step", Value(int64_t{member.position()})}});
    spmd::save_checkpoint(member.line, folder_, value, 0, random);
  });
  for (const auto& failure : failures) {
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->status(), Status::kDiverged);
    EXPECT_EQ(failure->origin_rank(), 0);
    EXPECT_NE(failure->message().find("\"step\" = 1"), std::string::npos) << failure->message();
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(CheckpointTest, ASaveRemovesTheFilesOfOneThatDiedAndNoOthers) {
  const std::string died = "shard-0123456789abcdef-00000-of-00001.safetensors";
  const std::string index = "index.json.0123456789abcdef";
  for (const std::string& name : {died, index, std::string("notes.txt"), std::string("shard-1.safetensors")}) {
    std::ofstream(folder_ + "/" + name) << "text";
  }
  save_four();
  const std::vector<std::string> first = names();
  EXPECT_EQ(std::count(first.begin(), first.end(), died) + std::count(first.begin(), first.end(), index), 0);
  EXPECT_EQ(std::count(first.begin(), first.end(), "notes.txt"), 1);
  EXPECT_EQ(std::count(first.begin(), first.end(), "shard-1.safetensors"), 1);
  EXPECT_EQ(first.size(), 7u);  // these, an index and the files of four members
}

TEST_F(CheckpointTest, ASaveThatFailsLeavesNoFile) {
  std::filesystem::create_directories(folder_ + "/index.json/in the way");
  EXPECT_EQ(status_of([&] { save_four(); }), Status::kInvalidState);
  EXPECT_EQ(names(), (std::vector<std::string>{"index.json"}));
}

TEST_F(CheckpointTest, OfSeveralFilesOfOthersOneIsToBeNamed) {
  std::vector<store::StoredTensor> none;
  for (const char* name : {"a", "b"}) {
    std::ofstream(folder_ + "/" + name + ".safetensors", std::ios::binary) << store::print_header(none);
  }
  EXPECT_EQ(status_of([&] { load_checkpoint_alone(folder_, Value()); }), Status::kNotFound);
  EXPECT_EQ(load_checkpoint_alone(folder_ + "/a.safetensors", Value()).as_map().size(), 0u);
}

size_t count_descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// The files that were opened first are closed for those that follow.
TEST_F(CheckpointTest, OfManyFilesSomeAreOpenAndOneThatWasReplacedIsNotRead) {
  constexpr size_t kFiles = spmd::OpenFiles::kMostOpen + 10;
  const size_t before = count_descriptors();
  const spmd::OpenFiles files(folder_);
  for (size_t i = 0; i < kFiles; ++i) {
    const std::string name = fmt::format("{}.safetensors", i);
    std::ofstream(folder_ + "/" + name) << "text";
    EXPECT_NE(files.open(name), nullptr);
  }
  EXPECT_EQ(count_descriptors(), before + spmd::OpenFiles::kMostOpen);
  std::ofstream(folder_ + "/another") << "text";
  for (const char* name : {"0.safetensors", "265.safetensors"}) {
    std::filesystem::copy_file(folder_ + "/another", folder_ + "/copy");
    std::filesystem::rename(folder_ + "/copy", folder_ + "/" + name);
  }
  EXPECT_EQ(status_of([&] { files.open("0.safetensors"); }), Status::kNotFound);
  EXPECT_EQ(status_of([&] { files.open("1.safetensors"); }), Status::kOk);
  EXPECT_EQ(status_of([&] { files.open("265.safetensors"); }), Status::kOk) << "it is open still";
}

TEST_F(CheckpointTest, ElementsThatWereChangedAreRefusedByName) {
  save_four();
  EXPECT_EQ(failure_of_load(), "no failure");
  const std::string file = file_of_mask();
  put(file, -1, 0);
  const std::string failure = failure_of_load();
  EXPECT_NE(failure.find("entry \"mask\" has another crc32 in its bytes from 0 on"), std::string::npos) << failure;
  EXPECT_NE(failure.find(file), std::string::npos) << failure;
}

// Runs a function when its elements are asked for.
class AtMaking final : public Initialiser {
 public:
  explicit AtMaking(std::function<void()> run) : run_(std::move(run)) {}
  void fill(const Dims&, const Dims& extent, std::byte* out) const override {
    run_();
    std::memset(out, 0, static_cast<size_t>(element_count(extent)) * sizeof(double));
  }

 private:
  const std::function<void()> run_;
};

TEST_F(CheckpointTest, WhatFailsIsNoticedBeforeTheFirstElementIsWritten) {
  save_four();
  const Tensor grid = counting({5, 7}, 1000);  // before "mask" in all orders
  const Tensor mask = tensor_of<uint8_t>({3}, {0, 0, 0});
  put(file_of_mask(), -1, 0);
  const Value into = Value::map({{"grid", Value(grid)}, {"mask", Value(mask)}});
  EXPECT_EQ(status_of([&] { load_checkpoint_alone(folder_, into); }), Status::kProtocol);
  EXPECT_EQ(values_of<double>(grid), values_of<double>(counting({5, 7}, 1000)));
}

// The file changes when "mask" has been checked.
TEST_F(CheckpointTest, ElementsThatChangeAfterTheirCheckAreRefusedByName) {
  save_four();
  const Tensor mask = tensor_of<uint8_t>({3}, {0, 0, 0});
  const auto damages = std::make_shared<AtMaking>([this] { put(file_of_mask(), -1, 7); });
  const Tensor whole = Tensor::deferred(Dtype::kFloat64, {3}, damages);
  const Value into = Value::map({{"mask", Value(mask)}, {"whole", Value(whole)}});
  const std::string failure = failure_of([&] { load_checkpoint_alone(folder_, into); });
  EXPECT_NE(failure.find("some tensors may have new or damaged elements"), std::string::npos) << failure;
  EXPECT_NE(failure.find("entry \"mask\" has another crc32 in its bytes from 0 on"), std::string::npos) << failure;
  for (const uint8_t element : values_of<uint8_t>(mask)) EXPECT_LE(element, 1) << "no bool";
}

// The part of the second member changes when that has checked it: the first has its new elements by then.
TEST_F(CheckpointTest, ASecondReadThatFailsOnOneMemberFailsOnAll) {
  MeshGroup group({2});
  const auto save = [&](Member& member) {
    Tensor w = counting({8}, 1000);
    spmd::mark_sharding(w, member.line, "('x',)", -1);
    SeededRandom random(1);
    const Value value = Value::map({{"w", Value(w)}, {"z", Value(counting({1}))}});
    spmd::save_checkpoint(member.line, folder_, value, 0, random);
  };
  group.run(save);
  const auto damage = [&] {
    const std::string path = folder_ + "/" + names().back();  // names end with the position
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const double element = 1007;
    const size_t place = text.find(std::string(reinterpret_cast<const char*>(&element), sizeof element));
    ASSERT_NE(place, std::string::npos);
    put(path, static_cast<int64_t>(place), 1);
  };
  std::vector<double> of_first;
  const auto failures = group.try_run([&](Member& member) {
    Tensor w = counting({8});
    spmd::mark_sharding(w, member.line, "('x',)", -1);
    const auto after_w = std::make_shared<AtMaking>([&] {
      if (member.position() == 1) damage();
    });
    const Tensor part = spmd::Sharding::of(w)->lying().shard;
    const Tensor z = Tensor::deferred(Dtype::kFloat64, {1}, after_w);
    try {
      load_checkpoint(member.line, folder_, Value::map({{"w", Value(w)}, {"z", Value(z)}}), 0);
    } catch (...) {
      if (member.position() == 0) of_first = values_of<double>(part);
      throw;
    }
  });
  const char* const left[] = {"the tensors here have their new elements: elements that were whole",
                              "some tensors may have new or damaged elements: elements that were whole"};
  for (size_t i = 0; i < failures.size(); ++i) {
    ASSERT_TRUE(failures[i]);
    EXPECT_NE(failures[i]->message().find(left[i]), std::string::npos) << failures[i]->message();
    EXPECT_EQ(failures[i]->origin_rank(), 1);
  }
  EXPECT_EQ(of_first, (std::vector<double>{1000, 1001, 1002, 1003}));
  EXPECT_NE(failure_of([&] { group.run(save); }), "no failure") << "the mesh has ended";
}

// The mesh ends while the second member waits to write, as a thread of its host holds its part.
TEST_F(CheckpointTest, AMeshThatEndsWithinAWriteLeavesNewElementsAndSaysSo) {
  MeshGroup group({2});
  std::latch has_read(1);
  std::latch is_held(1);
  std::latch has_ended(1);
  Tensor first;
  Tensor second;
  std::thread host([&] {
    has_read.wait();
    const TensorWriter writer(second);
    is_held.count_down();
    while (values_of<double>(first.hold())[0] != 1000) std::this_thread::yield();
    Mesh& mesh = group.program(0).mesh();
    mesh.end(Error(Status::kCancelled, "the host has enough"));
    // The second member has all parts of its next step: it fails only once it has heard of the end.
    for (size_t rank = 0; rank < 2; ++rank) wait(*group.program(rank).mesh().when_ended(), kForever);
    has_ended.wait();
  });
  const auto failures = group.try_run([&](Member& member) {
    Tensor w = counting({4}, 1000);
    spmd::mark_sharding(w, member.line, "('x',)", -1);
    SeededRandom random(1);
    spmd::save_checkpoint(member.line, folder_, Value::map({{"w", Value(w)}, {"z", Value(counting({1}))}}), 0, random);
    Tensor into = counting({4});
    spmd::mark_sharding(into, member.line, "('x',)", -1);
    (member.position() == 0 ? first : second) = spmd::Sharding::of(into)->lying().shard;
    const auto after_w = std::make_shared<AtMaking>([&] {
      if (member.position() == 0) return;
      has_read.count_down();
      is_held.wait();
    });
    const Tensor z = Tensor::deferred(Dtype::kFloat64, {1}, after_w);
    try {
      load_checkpoint(member.line, folder_, Value::map({{"w", Value(into)}, {"z", Value(z)}}), 0);
    } catch (...) {
      if (member.position() == 0) has_ended.count_down();
      throw;
    }
  });
  host.join();
  for (const auto& failure : failures) {
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->message().find("the tensors here have their new elements: "), 0u) << failure->message();
    EXPECT_NE(failure->message().find("the host has enough"), std::string::npos) << failure->message();
  }
  EXPECT_EQ(values_of<double>(second), (std::vector<double>{1002, 1003}));
}

// The second member has no elements of these tensors. The first one's change when it has checked them.
TEST_F(CheckpointTest, AMemberThatHasWrittenNothingWhenAnotherFailsSaysSo) {
  MeshGroup group({2});
  const auto failures = group.try_run([&](Member& member) {
    const auto part_of = [&](const Tensor& tensor) {
      spmd::mark_sharding(tensor, member.line, "('x',)", -1);
      return spmd::Sharding::of(tensor)->lying();
    };
    const Tensor w = counting({1}, 1000);
    const Tensor z = counting({1});
    part_of(w);
    const spmd::Lying part = part_of(z);
    SeededRandom random(1);
    spmd::save_checkpoint(member.line, folder_, Value::map({{"w", Value(w)}, {"z", Value(z)}}), 0, random);
    const auto after_w = std::make_shared<AtMaking>([&] {
      for (const std::string& name : names()) {
        if (name.ends_with(".safetensors")) put(folder_ + "/" + name, -16, 1);
      }
    });
    const Tensor shard = Tensor::deferred(Dtype::kFloat64, part.shard.shape(), after_w);
    const Tensor into = spmd::make_sharded(member.line, {}, {1}, part.spec, shard);
    load_checkpoint(member.line, folder_, Value::map({{"w", Value(w)}, {"z", Value(into)}}), 0);
  });
  const char* const left[] = {"some tensors may have new or damaged elements: ",
                              "the tensors here are as before, those of other members may have new elements: "};
  for (size_t i = 0; i < failures.size(); ++i) {
    ASSERT_TRUE(failures[i]);
    EXPECT_EQ(failures[i]->message().find(left[i]), 0u) << failures[i]->message();
    EXPECT_EQ(failures[i]->origin_rank(), 0);
  }
}

// A read of parts of two rows begins the second one within another piece: the rest of the first piece is read before,
// for its sum.
TEST_F(CheckpointTest, APieceThatIsReadInPartIsCheckedWhole) {
  constexpr int64_t kColumns = int64_t{3} << 19;  // 12 MiB: three pieces
  MeshGroup group({1});
  group.run([&](Member& member) {
    Tensor w = Tensor::empty(Dtype::kInt64, {2, kColumns});
    std::memset(w.mutable_data(), 0, w.byte_size());
    SeededRandom random(1);
    spmd::save_checkpoint(member.line, folder_, Value::map({{"w", Value(w)}}), 0, random);
  });
  const std::string file = folder_ + "/" + names().back();
  const spmd::StoredElements stored(std::make_unique<spmd::OpenFiles>(folder_), spmd::index_in(folder_));
  const layout::Box half{{0, 0}, {2, kColumns / 2}};  // 6 MiB of each row
  const auto failure = [&] {
    spmd::ReadBlock block;
    return failure_of([&] { stored.read(*stored.index().find("w"), half, {nullptr, {kColumns / 2, 1}}, block); });
  };
  const auto size = static_cast<int64_t>(std::filesystem::file_size(file));
  const int64_t begin = size - 2 * kColumns * 8;
  EXPECT_EQ(failure(), "no failure");
  for (const int64_t place : {5 << 20, 7 << 20}) {  // wanted, and not
    put(file, begin + place, 1);
    EXPECT_NE(failure().find("entry \"w\" has another crc32 in its bytes from 4194304 on"), std::string::npos) << place;
    put(file, begin + place, 0);
  }
}

// More files than stay open; one is replaced when all are checked.
TEST_F(CheckpointTest, AFailureAfterTheFirstElementIsWrittenTellsIt) {
  const auto write = [&](const std::string& name, const std::string& entry, int64_t count) {
    std::vector<store::StoredTensor> tensors{{entry, Dtype::kFloat64, {count}}};
    std::string text = store::print_header(tensors);
    text += std::string(static_cast<size_t>(count) * sizeof(double), '\0');
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  };
  std::map<std::string, Value> into;
  std::string entries;
  for (size_t i = 1000; i < 1000 + spmd::OpenFiles::kMostOpen + 10; ++i) {
    const std::string entry = std::to_string(i);
    write(entry + ".safetensors", entry, 1);
    into.emplace(entry, Value(counting({1}, 5)));
    entries += fmt::format("{}\"{}\":\"{}.safetensors\"", entries.empty() ? "" : ",", entry, entry);
  }
  std::ofstream(folder_ + "/model.safetensors.index.json") << "{\"weight_map\":{" + entries + "}}";
  const Tensor first = into.at("1000").as_tensor();
  const auto replaces = std::make_shared<AtMaking>([&] {
    write("new", "1001", 2);
    std::filesystem::rename(folder_ + "/new", folder_ + "/1001.safetensors");
  });
  into.rbegin()->second = Value(Tensor::deferred(Dtype::kFloat64, {1}, replaces));
  const Value targets = Value::map({into.begin(), into.end()});
  const std::string failure = failure_of([&] { load_checkpoint_alone(folder_, targets); });
  EXPECT_NE(failure.find("some tensors may have new or damaged elements"), std::string::npos) << failure;
  EXPECT_NE(failure.find("1001.safetensors"), std::string::npos) << failure;
  EXPECT_EQ(values_of<double>(first), (std::vector<double>{0}));
}

TEST_F(CheckpointTest, AHeaderThatWasChangedIsRefused) {
  save_four();
  const std::string file = file_of_mask();
  std::ifstream text(file, std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(text), {});
  put(file, static_cast<int64_t>(all.find("\"format\":\"pt\"")) + 10, 'q');
  const std::string failure = failure_of_load();
  EXPECT_NE(failure.find("its header is not the one that the index says"), std::string::npos) << failure;
}

// The index and the header of its file have the right sums, and say other shapes.
TEST_F(CheckpointTest, AFileThatLacksAnEntryOfTheIndexIsRefusedByName) {
  std::vector<store::StoredTensor> tensors{{"other", Dtype::kFloat64, {2}}, {"w", Dtype::kFloat64, {2}}};
  const std::string header = store::print_header(tensors);
  std::ofstream(folder_ + "/a.safetensors", std::ios::binary) << header + std::string(32, '\0');
  const auto failure_for = [&](const store::StoredTensor& tensor) {
    store::Index index;
    const auto sum = store::crc32_of(0, header.data(), header.size());
    index.add(tensor, *index.files.emplace("a.safetensors", sum).first, 0);
    std::ofstream(folder_ + "/index.json") << store::print_index(index);
    return failure_of([&] { spmd::check_checkpoint(folder_); });
  };
  EXPECT_EQ(failure_for({"w", Dtype::kFloat64, {2}}), "no failure");
  for (const store::StoredTensor& wrong :
       {store::StoredTensor{"w", Dtype::kFloat64, {2, 1}}, {"w", Dtype::kInt64, {2}}, {"v", Dtype::kFloat64, {2}}}) {
    EXPECT_NE(failure_for(wrong).find("does not have entry \"" + wrong.name + "\" as the index says"),
              std::string::npos)
        << failure_for(wrong);
  }
}

TEST_F(CheckpointTest, AFileThatIsCutIsRefused) {
  save_four();
  const std::string file = file_of_mask();
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_EQ(status_of([&] { load_checkpoint_alone(folder_, Value()); }), Status::kProtocol);
}

// Files of other programs have no sums.
TEST_F(CheckpointTest, EntriesOfOthersAreReadAsTheyAreOrNamed) {
  std::vector<store::StoredTensor> tensors{{"whole", Dtype::kFloat32, {2}}, {"mask", Dtype::kBool, {2}}};
  tensors.push_back({"half", Dtype::kFloat32, {3}, 0, store::find_other_dtype("F16")});
  const float whole[] = {1, 2};
  std::string text = store::print_header(tensors);
  text.append(reinterpret_cast<const char*>(whole), sizeof whole);
  text += std::string("\1\2", 2) + std::string(6, 'h');
  std::ofstream(folder_ + "/model.safetensors", std::ios::binary) << text;
  const Value loaded = load_checkpoint_alone(folder_, Value());
  EXPECT_EQ(values_of<float>(loaded.find("whole")->as_tensor()), (std::vector<float>{1, 2}));
  const auto failure = [&](const char* name) {
    return failure_of([&] { loaded.find(name)->as_tensor().storage().make_elements(); });
  };
  EXPECT_NE(failure("mask").find("entry \"mask\" holds the bool 2, which must be 0 or 1"), std::string::npos)
      << failure("mask");
  EXPECT_EQ(loaded.find("half")->as_tensor().shape(), (Dims{3}));
  EXPECT_NE(failure("half").find("UNSUPPORTED"), std::string::npos) << failure("half");
  EXPECT_NE(failure("half").find("entry \"half\" is of dtype F16"), std::string::npos) << failure("half");
  const Tensor into = Tensor::empty(Dtype::kFloat32, {3});
  EXPECT_EQ(status_of([&] {
              load_checkpoint_alone(folder_, Value::map({{"half", Value(into)}}));
            }),
            Status::kUnsupported);
  EXPECT_NE(failure_of([&] { spmd::check_checkpoint(folder_); }).find("entry \"mask\""), std::string::npos);
}

}  // namespace
}  // namespace distag::testing
