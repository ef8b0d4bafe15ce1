// The content of a recorded graph on each worker: the send and recv nodes, and the workers it knows, of the usual
// shapes.
#include <gtest/gtest.h>

#include "processes/processes.h"

namespace distag::testing {
namespace {

using Counts = std::vector<int64_t>;  // send, recv, known ranks...

class RecordingTest : public ::testing::Test {
 protected:
  void begin(int size) {
    GroupOptions options;
    options.size = size;
    group = std::make_unique<Group>(options);
    distag_context_create(group->worker(), context.out(), &err);
    a = leaf(1);
    b = leaf(5);
  }
  void TearDown() override {
    EXPECT_EQ(err.code, DISTAG_OK) << text_of(err);
    answer = Value();
    result = nullptr;
    group->self().remember(nullptr);
    context = Context();
    if (group) group->expect_clean_shutdown();
  }

  Tensor leaf(double first, int requires_grad = 1) {
    const double data[4] = {first, first + 1, first + 2, first + 3};
    const int64_t shape[2] = {2, 2};
    Tensor tensor;
    distag_tensor_create(data, sizeof data, DISTAG_FLOAT64, shape, 2, tensor.out(), &err);
    distag_tensor_set_requires_grad(tensor.get(), requires_grad, &err);
    return tensor;
  }
  // result = function of `to` with a and b, through relays on the names in between.
  void call(std::vector<std::string> relays, const char* to, const char* function) {
    relays.push_back(to);
    std::vector<Value> texts;
    std::vector<distag_value*> args;
    for (size_t i = 1; i < relays.size(); ++i) {
      const std::string next = i + 1 < relays.size() ? "relay" : function;
      for (const std::string& text : {relays[i], next}) {
        distag_value_create_text(text.c_str(), texts.emplace_back().out(), &err);
        args.push_back(texts.back().get());
      }
    }
    args.push_back(distag_tensor_as_value(a.get()));
    args.push_back(distag_tensor_as_value(b.get()));
    distag_call(group->worker(), context.get(), relays[0].c_str(), relays.size() > 1 ? "relay" : function, args.data(),
                args.size(), nullptr, answer.out(), &err);
    distag_value_get_tensor(answer.get(), &result, &err);
  }
  Counts counts_here() {
    distag_context_info info = DISTAG_CONTEXT_INFO_INIT;
    int32_t ranks[16];
    size_t known = 0;
    distag_context_get_info(context.get(), &info, &err);
    distag_context_copy_known_ranks(context.get(), ranks, 16, &known, &err);
    EXPECT_EQ(info.known_count, known);
    Counts counts = {info.send_count, info.recv_count};
    counts.insert(counts.end(), ranks, ranks + known);
    return counts;
  }
  Counts counts_on(const char* name) { return call_for_numbers(group->worker(), name, "info"); }

  // Sum of the result, backward; the gradients of a and b must be all ones.
  void expect_gradients_of_a_sum() {
    Tensor loss;
    Gradients gradients;
    distag_sum(result, nullptr, 0, 0, loss.out(), &err);
    distag_tensor* root = loss.get();
    distag_backward(context.get(), &root, 1, nullptr, &err);
    distag_get_gradients(context.get(), gradients.out(), &err);
    EXPECT_EQ(distag_gradients_get_count(gradients.get()), 2u);
    for (const Tensor* leaf_tensor : {&a, &b}) {
      double data[4] = {0};
      distag_tensor_copy_data(distag_gradients_find(gradients.get(), leaf_tensor->get()), data, sizeof data, &err);
      for (const double value : data) EXPECT_EQ(value, 1);
    }
  }

  std::unique_ptr<Group> group;
  distag_error err = DISTAG_ERROR_INIT;
  Context context;
  Tensor a, b;
  Value answer;
  distag_tensor* result = nullptr;
};

TEST_F(RecordingTest, ACallsAddOnB) {
  begin(2);
  call({}, "B", "add");
  EXPECT_EQ(counts_here(), (Counts{1, 1, 1}));
  EXPECT_EQ(counts_on("B"), (Counts{1, 1, 0}));
  expect_gradients_of_a_sum();
}

TEST_F(RecordingTest, ABuiltInOpIsRecordedLikeAFunction) {
  begin(2);
  call({}, "B", "sub");
  EXPECT_EQ(counts_here(), (Counts{1, 1, 1}));
  EXPECT_EQ(call_for_numbers(group->worker(), "B", "info", context.get()), (Counts{1, 1, 0}));
}

TEST_F(RecordingTest, ACallsBWhichCallsC) {
  begin(3);
  call({"B"}, "C", "add");
  EXPECT_EQ(counts_here(), (Counts{1, 1, 1}));
  EXPECT_EQ(counts_on("B"), (Counts{2, 2, 0, 2}));
  EXPECT_EQ(counts_on("C"), (Counts{1, 1, 1}));
  expect_gradients_of_a_sum();
}

TEST_F(RecordingTest, ACallsBWhichCallsA) {
  begin(2);
  call({"B"}, "A", "add");
  EXPECT_EQ(counts_here(), (Counts{2, 2, 1}));
  EXPECT_EQ(counts_on("B"), (Counts{2, 2, 0}));
  expect_gradients_of_a_sum();
}

TEST_F(RecordingTest, ACallsItself) {
  begin(1);
  call({}, "A", "add");
  EXPECT_EQ(counts_here(), (Counts{2, 2, 0}));
  expect_gradients_of_a_sum();
}

TEST_F(RecordingTest, AFunctionWithoutGradientsMakesTheContextKnown) {
  begin(2);
  a = leaf(1, 0);
  b = leaf(1, 0);
  call({}, "B", "add");
  EXPECT_EQ(counts_here(), (Counts{0, 0, 1}));
  const Counts there = counts_on("B");
  ASSERT_GE(there.size(), 2u);
  EXPECT_EQ(there[0], 0);
  EXPECT_EQ(there[1], 0);
}

TEST_F(RecordingTest, AReleasedContextIsGoneEverywhere) {
  begin(3);
  call({"B"}, "C", "add");
  EXPECT_EQ(call_for_numbers(group->worker(), "C", "contexts"), Counts{1});
  answer = Value();
  result = nullptr;
  context = Context();
  // RELEASE goes out before the next call on the same stream; the context then ends behind it, soon.
  for (const char* name : {"B", "C"}) {
    int64_t left = 1;
    for (int tries = 0; left != 0 && tries < 1000; ++tries) {
      left = call_for_numbers(group->worker(), name, "contexts").at(0);
    }
    EXPECT_EQ(left, 0) << name;
  }
}

}  // namespace
}  // namespace distag::testing
