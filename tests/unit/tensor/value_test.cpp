#include "tensor/value.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "support/expect.h"
#include "support/tensors.h"

namespace distag {
namespace {

std::string message_of(const std::function<void()>& run) {
  const Error error = testing::error_of(run);
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  return error.message();
}

Value whole(int64_t number) { return Value(number); }

TEST(ValueTest, KnowsItsKind) {
  EXPECT_TRUE(Value().is_null());
  EXPECT_EQ(Value(true).kind(), ValueKind::kBool);
  EXPECT_EQ(whole(3).kind(), ValueKind::kInt64);
  EXPECT_EQ(Value(0.5).kind(), ValueKind::kFloat64);
  EXPECT_EQ(Value::text("x").kind(), ValueKind::kText);
  EXPECT_EQ(Value::bytes({std::byte{1}}).kind(), ValueKind::kBytes);
  EXPECT_EQ(Value(Tensor::scalar(Dtype::kFloat32, 1)).kind(), ValueKind::kTensor);
  EXPECT_EQ(Value::list({}).kind(), ValueKind::kList);
  EXPECT_EQ(Value::map({}).kind(), ValueKind::kMap);
  EXPECT_STREQ(kind_name(ValueKind::kObject), "an object");
  EXPECT_STREQ(kind_name(static_cast<ValueKind>(99)), "of an unknown kind");
}

TEST(ValueTest, GivesWhatItHolds) {
  EXPECT_TRUE(Value(true).as_bool());
  EXPECT_EQ(whole(3).as_int64(), 3);
  EXPECT_EQ(Value(0.5).as_float64(), 0.5);
  EXPECT_EQ(whole(3).as_float64(), 3.0);
  EXPECT_EQ(Value::text("x").as_text(), "x");
  EXPECT_EQ(Value::bytes({std::byte{1}}).as_bytes().size(), 1u);
}

TEST(ValueTest, SaysWhatItIsInstead) {
  EXPECT_EQ(message_of([] { whole(3).as_text(); }), "the value is an int64, not a text");
  EXPECT_EQ(message_of([] { Value().as_tensor(); }), "the value is null, not a tensor");
}

TEST(ValueTest, SortsAMapByKey) {
  Value map = Value::map({{"b", whole(2)}, {"a", whole(1)}});
  EXPECT_EQ(map.as_map()[0].first, "a");
  EXPECT_EQ(map.find("b")->as_int64(), 2);
  EXPECT_EQ(map.find("c"), nullptr);
}

TEST(ValueTest, RefusesWhatNoValueCanBe) {
  EXPECT_NE(message_of([] { Value::text("\xFF"); }), "");
  EXPECT_NE(message_of([] { Value::text(std::string("a\0b", 3)); }), "");
  EXPECT_NE(message_of([] { Value::map({{"a", Value()}, {"a", Value()}}); }), "");
  EXPECT_NE(message_of([] { Value::map({{"\xFF", Value()}}); }), "");
  Value object(std::make_shared<HostObject>("thing", nullptr, Task()));
  EXPECT_NE(message_of([&] { Value::list({object}); }), "");
  EXPECT_NE(message_of([&] { Value::map({{"a", object}}); }), "");
}

TEST(ValueTest, NestsAtMost16Deep) {
  Value value = whole(1);
  for (size_t i = 0; i < kMaxValueDepth; ++i) value = Value::list({value});
  EXPECT_EQ(value.depth(), kMaxValueDepth);
  EXPECT_NE(message_of([&] { Value::list({value}); }), "");
  EXPECT_NE(message_of([&] { Value::map({{"a", value}}); }), "");
}

TEST(ValueTest, VisitsAndReplacesTensorsInOrder) {
  Value value = Value::map({{"b", Value(Tensor::scalar(Dtype::kFloat32, 3))},
                            {"a", Value::list({Value(Tensor::scalar(Dtype::kFloat32, 1)), whole(7),
                                               Value(Tensor::scalar(Dtype::kFloat32, 2))})}});
  std::vector<double> seen;
  value.for_each_tensor([&seen](const Tensor& tensor) { seen.push_back(tensor.item()); });
  EXPECT_EQ(seen, (std::vector<double>{1, 2, 3}));
  Value mapped =
      value.map_tensors([](const Tensor& tensor) { return Tensor::scalar(Dtype::kFloat64, tensor.item() * 10); });
  seen.clear();
  mapped.for_each_tensor([&seen](const Tensor& tensor) { seen.push_back(tensor.item()); });
  EXPECT_EQ(seen, (std::vector<double>{10, 20, 30}));
  EXPECT_EQ(mapped.find("a")->as_list()[1].as_int64(), 7);
  EXPECT_EQ(value.find("b")->as_tensor().item(), 3.0);
}

TEST(ValueTest, EndsAHostObjectOnce) {
  int ended = 0;
  {
    Value object(std::make_shared<HostObject>("thing", nullptr, [&ended] { ++ended; }));
    Value same = object;
    EXPECT_EQ(same.as_object()->type, "thing");
  }
  EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace distag
