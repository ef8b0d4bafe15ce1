#include "tensor/deferred.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "support/expect.h"
#include "support/tensors.h"
#include "tensor/access.h"
#include "tensor/value.h"

namespace distag::testing {
namespace {

// Element i of the whole is i. Counts and remembers its calls, before which it runs code of the test.
class Counting final : public Initialiser {
 public:
  explicit Counting(
      const Dims& shape, std::function<void()> before = [] {})
      : strides_(row_major_strides(shape)), before_(std::move(before)) {}
  ~Counting() override {
    if (destroyed_ != nullptr) ++*destroyed_;
  }
  void count_destroyed(std::atomic<int>* destroyed) { destroyed_ = destroyed; }

  void fill(const Dims& offset, const Dims& extent, std::byte* out) const override {
    ++calls_;
    before_();
    auto* next = reinterpret_cast<int64_t*>(out);
    for (int64_t i = 0; i < element_count(extent); ++i) {
      int64_t index = 0;
      int64_t rest = i;
      for (size_t d = extent.size(); d-- > 0; rest /= extent[d]) {
        index += (offset[d] + rest % extent[d]) * strides_[d];
      }
      *next++ = index;
    }
  }
  int calls() const { return calls_; }

 private:
  const Dims strides_;
  const std::function<void()> before_;
  mutable std::atomic<int> calls_{0};
  std::atomic<int>* destroyed_ = nullptr;
};

std::vector<int64_t> numbers(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Tensor deferred(const std::shared_ptr<const Counting>& initialiser, const Dims& shape) {
  return Tensor::deferred(Dtype::kInt64, shape, initialiser);
}

// Says nothing but that the tensor is sharded.
class Slot final : public ShardSlot {
 public:
  Tensor local() const override { return {}; }
  Tensor snapshot() const override { return {}; }
  Tensor alias() const override { return {}; }
  Tensor like(Tensor) const override { return {}; }
  Tensor whole() const override { fail(Status::kInvalidState, "sharded"); }
  std::string describe() const override { return "test"; }
  bool counts_here() const override { return true; }
  bool is_partial() const override { return false; }
  const void* mesh() const override { return nullptr; }
  double sum_over_members(double own, Nanos) const override { return own; }
};

TEST(DeferredTest, HasNoMemoryHoweverLargeItIs) {
  const Dims shape{int64_t{1} << 20, int64_t{1} << 20};
  const auto initialiser = std::make_shared<Counting>(shape);
  const Tensor x = deferred(initialiser, shape);
  EXPECT_EQ(x.count(), int64_t{1} << 40);
  EXPECT_EQ(x.byte_size(), size_t{1} << 43);
  EXPECT_EQ(x.strides(), (Dims{int64_t{1} << 20, 1}));
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_FALSE(x.storage().is_made());
  EXPECT_FALSE(x.is_exclusive());
  EXPECT_FALSE(x.owns_buffer());
  EXPECT_EQ(x.initialiser(), initialiser);
  EXPECT_EQ(x.view({4}, {1}, 0).initialiser(), nullptr);  // but a part of it
  // More than the machine has: the reader is told, and nothing is lost.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(status_of([&] { x.hold(); }), Status::kOutOfMemory);
    EXPECT_EQ(status_of([&] { TensorWriter writer(x); }), Status::kOutOfMemory);
  }
  EXPECT_EQ(initialiser->calls(), 0);
  EXPECT_EQ(x.initialiser(), initialiser);
  EXPECT_EQ(status_of([] {
              deferred(std::make_shared<Counting>(Dims{}), {int64_t{1} << 31, int64_t{1} << 31});
            }),
            Status::kInvalidArgument);
}

TEST(DeferredTest, IsMadeByEachWayOfReading) {
  const Dims shape{2, 3};
  const std::vector<std::function<std::vector<int64_t>(const Tensor&)>> ways = {
      [](const Tensor& x) { return values_of<int64_t>(x); },
      [](const Tensor& x) { return values_of<int64_t>(x.hold()); },
      [](const Tensor& x) {
        return values_of<int64_t>(HeldTensors({&x, 1}).all()[0]);
      },
      [](const Tensor& x) { return values_of<int64_t>(hold(Values{Value(x)})[0].as_tensor()); },
      [](const Tensor& x) { return values_of<int64_t>(x.snapshot()); },
      [](const Tensor& x) { return values_of<int64_t>(x.clone()); },
      [](const Tensor& x) { return std::vector<int64_t>(x.data_as<int64_t>(), x.data_as<int64_t>() + 6); },
      [](const Tensor& x) {
        make_elements(Value::list({Value(x)}));
        return x.storage().is_made() ? values_of<int64_t>(x) : std::vector<int64_t>();
      },
      [](const Tensor& x) {
        const TensorWriter writer(x);
        return std::vector<int64_t>(x.data_as<int64_t>(), x.data_as<int64_t>() + 6);
      }};
  for (const auto& read : ways) {
    std::atomic<int> destroyed{0};
    auto initialiser = std::make_shared<Counting>(shape);
    initialiser->count_destroyed(&destroyed);
    const Tensor x = deferred(initialiser, shape);
    const Counting& counting = *initialiser;
    EXPECT_EQ(read(x), numbers(6));
    EXPECT_EQ(counting.calls(), 1);
    EXPECT_EQ(x.initialiser(), nullptr);
    EXPECT_EQ(destroyed, 0);
    initialiser.reset();  // its only holder by now
    EXPECT_EQ(destroyed, 1);
    EXPECT_EQ(read(x), numbers(6));
  }
}

TEST(DeferredTest, FollowsItsViewsAndWrites) {
  const auto initialiser = std::make_shared<Counting>(Dims{4});
  Tensor x = deferred(initialiser, {4});
  const Tensor view = x.view({2}, {1}, 2);
  EXPECT_EQ(values_of<int64_t>(view), (std::vector<int64_t>{2, 3}));
  {
    const TensorWriter writer(x);
    x.mutable_data_as<int64_t>()[3] = 9;
  }
  EXPECT_EQ(values_of<int64_t>(view), (std::vector<int64_t>{2, 9}));
  EXPECT_EQ(initialiser->calls(), 1);
}

TEST(DeferredTest, IsNotMadeWhereNobodyMayWait) {
  const auto initialiser = std::make_shared<Counting>(Dims{2});
  const Tensor x = deferred(initialiser, {2});
  Tensors tried{tensor_of<float>({1}, {1}), x};
  EXPECT_FALSE(try_hold(std::span<Tensor>(tried)));
  EXPECT_FALSE(tried[0].is_held());
  EXPECT_EQ(initialiser->calls(), 0);
  EXPECT_EQ(values_of<int64_t>(x), numbers(2));
  EXPECT_TRUE(try_hold(std::span<Tensor>(tried)));
}

TEST(DeferredTest, HasNothingToMakeWithoutElements) {
  const auto initialiser = std::make_shared<Counting>(Dims{3, 0});
  const Tensor x = deferred(initialiser, {3, 0});
  EXPECT_EQ(x.data(), nullptr);
  EXPECT_EQ(x.hold().count(), 0);
  const Tensor scalar = deferred(initialiser, {});
  EXPECT_EQ(initialiser->calls(), 0);
  EXPECT_EQ(scalar.item(), 0);
  EXPECT_EQ(initialiser->calls(), 1);
}

TEST(DeferredTest, ThreadsMakeItOnce) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> destroyed{0};
    std::atomic<int> ready{0};
    std::atomic<int> wrong{0};
    int calls = 0;
    {
      auto initialiser = std::make_shared<Counting>(Dims{64}, [] { std::this_thread::yield(); });
      initialiser->count_destroyed(&destroyed);
      const Tensor x = deferred(initialiser, {64});
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&x, &ready, &wrong, i] {
          for (++ready; ready < 4;) std::this_thread::yield();
          const Tensor held = i % 2 == 0 ? x.hold() : HeldTensors({&x, 1}).all()[0];
          if (values_of<int64_t>(held) != numbers(64)) ++wrong;
        });
      }
      for (std::thread& thread : threads) thread.join();
      calls = initialiser->calls();
    }
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(destroyed, 1);
    EXPECT_EQ(wrong, 0);
  }
}

TEST(DeferredTest, FailureGoesToTheReaderAndTheNextTriesAgain) {
  std::atomic<int> failures{2};
  const auto initialiser = std::make_shared<Counting>(Dims{3}, [&failures] {
    if (failures-- > 0) fail(Status::kNotFound, "no such file");
  });
  const Tensor x = deferred(initialiser, {3});
  EXPECT_EQ(failure_of([&] { x.hold(); }), "NOT_FOUND: no such file");
  EXPECT_EQ(failure_of([&] { const HeldTensors held({&x, 1}); }), "NOT_FOUND: no such file");
  EXPECT_EQ(x.initialiser(), initialiser);
  EXPECT_EQ(values_of<int64_t>(x), numbers(3));
  EXPECT_EQ(initialiser->calls(), 3);
}

// The first of two readers fails; the other, which waits for it or comes after it, makes the elements by itself.
TEST(DeferredTest, WaitingReaderTriesByItself) {
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> began{0};
    std::atomic<bool> comes{false};
    const auto initialiser = std::make_shared<Counting>(Dims{3}, [&] {
      if (began++ > 0) return;
      while (!comes) std::this_thread::yield();
      fail(Status::kNotFound, "the first fails");
    });
    const Tensor x = deferred(initialiser, {3});
    std::thread first([&x] { EXPECT_EQ(status_of([&x] { x.hold(); }), Status::kNotFound); });
    while (began == 0) std::this_thread::yield();
    std::thread second([&x, &comes] {
      comes = true;
      EXPECT_EQ(values_of<int64_t>(x), numbers(3));
    });
    first.join();
    second.join();
    EXPECT_EQ(initialiser->calls(), 2);
  }
}

TEST(DeferredTest, SourceThatReadsItsOwnTensorIsRefused) {
  Tensor own;
  std::atomic<bool> reads{true};
  const auto initialiser = std::make_shared<Counting>(Dims{2}, [&] {
    if (reads) own.hold();
  });
  own = deferred(initialiser, {2});
  EXPECT_EQ(status_of([&] { own.hold(); }), Status::kInvalidState);
  reads = false;
  EXPECT_EQ(values_of<int64_t>(own), numbers(2));
}

TEST(DeferredTest, SourceReadsOtherDeferredTensors) {
  const Tensor inner = deferred(std::make_shared<Counting>(Dims{2}), {2});
  const Tensor outer = deferred(std::make_shared<Counting>(Dims{2}, [&inner] { inner.hold(); }), {2});
  EXPECT_EQ(values_of<int64_t>(outer), numbers(2));
  EXPECT_TRUE(inner.storage().is_made());
}

// Two threads whose sources each read the tensor of the other: no thread waits for ever, and both can be read later.
TEST(DeferredTest, SourcesThatWaitForEachOtherAreRefused) {
  for (int round = 0; round < 200; ++round) {
    std::vector<Tensor> pair(2);
    std::atomic<int> began{0};
    std::atomic<bool> cross{true};
    for (size_t i = 0; i < 2; ++i) {
      const auto initialiser = std::make_shared<Counting>(Dims{2}, [&pair, &began, &cross, i] {
        if (!cross) return;
        for (++began; began < 2;) std::this_thread::yield();
        pair[1 - i].hold();
      });
      pair[i] = deferred(initialiser, {2});
    }
    std::atomic<int> refused{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&pair, &refused, i] {
        if (status_of([&] { pair[i].hold(); }) == Status::kInvalidState) ++refused;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(refused, 2);
    cross = false;
    EXPECT_EQ(values_of<int64_t>(pair[0]), numbers(2));
    EXPECT_EQ(values_of<int64_t>(pair[1]), numbers(2));
  }
}

TEST(DeferredTest, ShardedOneNeedsItsElementsNoLonger) {
  std::atomic<int> destroyed{0};
  auto initialiser = std::make_shared<Counting>(Dims{4});
  initialiser->count_destroyed(&destroyed);
  const Tensor x = deferred(initialiser, {4});
  initialiser.reset();
  EXPECT_TRUE(x.set_shard_slot(std::make_unique<Slot>()));
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(x.initialiser(), nullptr);
  EXPECT_EQ(status_of([&] { x.hold(); }), Status::kInvalidState);
  EXPECT_EQ(status_of([&] { const HeldTensors held({&x, 1}); }), Status::kInvalidState);
}

TEST(DeferredTest, ViewsOfAShardedOneMakeTheWholeStill) {
  const auto initialiser = std::make_shared<Counting>(Dims{4});
  const Tensor x = deferred(initialiser, {4});
  const Tensor view = x.view({2}, {1}, 2);
  EXPECT_TRUE(x.set_shard_slot(std::make_unique<Slot>()));
  EXPECT_EQ(status_of([&] { x.hold(); }), Status::kInvalidState);
  EXPECT_EQ(status_of([&] { const HeldTensors held({&x, 1}); }), Status::kInvalidState);
  EXPECT_EQ(initialiser->calls(), 0);
  EXPECT_EQ(values_of<int64_t>(view), (std::vector<int64_t>{2, 3}));
}

// Marked while a reader makes the whole: that has what it began, or is told that it is sharded.
TEST(DeferredTest, IsShardedWhileAnotherThreadReads) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> destroyed{0};
    std::atomic<bool> began{false};
    {
      auto initialiser = std::make_shared<Counting>(Dims{8}, [&began] { began = true; });
      initialiser->count_destroyed(&destroyed);
      const Tensor x = deferred(initialiser, {8});
      initialiser.reset();
      std::thread reader([&x] {
        std::vector<int64_t> read;
        const Status status = status_of([&] { read = values_of<int64_t>(x.hold()); });
        EXPECT_TRUE(status == Status::kOk ? read == numbers(8) : status == Status::kInvalidState);
      });
      while (round % 2 == 0 && !began) std::this_thread::yield();
      EXPECT_TRUE(x.set_shard_slot(std::make_unique<Slot>()));
      reader.join();
    }
    EXPECT_EQ(destroyed, 1);
  }
}

// Remembers the boxes that are wanted and writes nothing.
class Recording final : public Initialiser {
 public:
  void fill(const Dims& offset, const Dims& extent, std::byte* out) const override {
    boxes.push_back(to_string(offset) + to_string(extent));
    if (first == nullptr) first = out;
    places.push_back(out - first);
  }
  mutable std::vector<std::string> boxes;
  mutable std::vector<ptrdiff_t> places;
  mutable std::byte* first = nullptr;
};

TEST(DeferredTest, LargeBoxesAreFilledInParts) {
  const int64_t mebi = int64_t{1} << 20;
  const Recording whole;
  make_box(whole, Dtype::kInt64, {7, 0}, {8, mebi});
  EXPECT_EQ(whole.boxes, (std::vector<std::string>{"[7, 0][8, 1048576]"}));  // 64 MiB
  const Recording parts;
  make_box(parts, Dtype::kInt64, {1, 5}, {5, 4 * mebi});
  EXPECT_EQ(parts.boxes, (std::vector<std::string>{"[1, 5][2, 4194304]", "[3, 5][2, 4194304]", "[5, 5][1, 4194304]"}));
  EXPECT_EQ(parts.places, (std::vector<ptrdiff_t>{0, 64 * mebi, 128 * mebi}));
  const Recording rows;
  make_box(rows, Dtype::kInt64, {0, 0}, {2, 9 * mebi});  // a row is 72 MiB
  EXPECT_EQ(rows.boxes, (std::vector<std::string>{"[0, 0][1, 9437184]", "[1, 0][1, 9437184]"}));
  const Recording nothing;
  make_box(nothing, Dtype::kInt64, {3, 0}, {0, 4});
  EXPECT_TRUE(nothing.boxes.empty());
  const auto recording = std::make_shared<Recording>();
  Tensor::deferred(Dtype::kInt64, {12, mebi}, recording).hold();
  EXPECT_EQ(recording->boxes, (std::vector<std::string>{"[0, 0][8, 1048576]", "[8, 0][4, 1048576]"}));
}

TEST(DeferredTest, IsCounted) {
  const DeferredCounts before = deferred_counts();
  const auto initialiser = std::make_shared<Counting>(Dims{4});
  {
    const Tensor read = deferred(initialiser, {4});
    const Tensor marked = deferred(initialiser, {4});
    const Tensor left = deferred(initialiser, {4});
    EXPECT_EQ(deferred_counts().tensors, before.tensors + 3);
    read.hold();
    EXPECT_EQ(deferred_counts().tensors, before.tensors + 2);
    make_box(*initialiser, Dtype::kInt64, {1}, {2});
    marked.set_shard_slot(std::make_unique<Slot>());
    EXPECT_EQ(deferred_counts().tensors, before.tensors + 1);
  }
  EXPECT_EQ(deferred_counts().tensors, before.tensors);
  EXPECT_EQ(deferred_counts().bytes_made_whole, before.bytes_made_whole + 32);
  EXPECT_EQ(deferred_counts().bytes_made_here, before.bytes_made_here + 16);
}

}  // namespace
}  // namespace distag::testing
