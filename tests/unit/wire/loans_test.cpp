// Frames that the receiver reads where they lie in the memory of a sender who may change them at any time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "base/violation.h"
#include "sample_messages.h"
#include "wire/codec.h"

namespace distag::wire {
namespace {

constexpr int64_t kCount = 20'000;

// A REPLY with a tensor of zeros whose elements lie in `memory`.
Message arrive(Dtype dtype, std::vector<std::byte>& memory) {
  Tensor tensor = Tensor::empty(dtype, {kCount});
  std::memset(tensor.mutable_data(), 0, tensor.byte_size());
  Reply reply;
  reply.call = {7, 1};
  reply.result = Value(tensor);
  const Encoded encoded = encode({4, 3, {}, reply}, Limits());
  EXPECT_EQ(encoded.payload.size(), 1u);
  memory.assign(encoded.payload[0].data(), encoded.payload[0].data() + encoded.payload[0].size());
  return decode(encoded.header, {Frame(memory.data(), memory.size(), nullptr).as_loan()}, Limits());
}

const Tensor& result_of(const Message& message) { return std::get<Reply>(message.body).result.as_tensor(); }

TEST(Loans, NumbersAreReadWhereTheyLie) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    std::vector<std::byte> memory;
    const Message message = arrive(dtype, memory);
    EXPECT_EQ(result_of(message).hold().data(), memory.data());
    EXPECT_TRUE(result_of(message).is_protected());
  }
}

TEST(Loans, AWriteCopiesThem) {
  std::vector<std::byte> memory;
  Message message = arrive(Dtype::kFloat32, memory);
  Tensor tensor = result_of(message);
  tensor.mutable_data_as<float>()[0] = 5;
  EXPECT_EQ(memory, std::vector<std::byte>(memory.size()));
  EXPECT_FALSE(tensor.is_protected());
}

// Else a sender could make an index lead out of a table once it was checked.
TEST(Loans, IndicesAndTruthValuesAreCopiedBeforeTheyAreChecked) {
  for (const Dtype dtype : {Dtype::kInt64, Dtype::kBool}) {
    std::vector<std::byte> memory;
    const Message message = arrive(dtype, memory);
    std::fill(memory.begin(), memory.end(), std::byte{0xff});
    const Tensor held = result_of(message).hold();
    EXPECT_FALSE(held.is_protected());
    EXPECT_EQ(std::vector<std::byte>(held.data(), held.data() + held.byte_size()),
              std::vector<std::byte>(held.byte_size()));
  }
}

TEST(Loans, ALargeCopyIsMadeOffTheLoop) {
  for (const Dtype dtype : {Dtype::kInt64, Dtype::kFloat64}) {
    Reply reply;
    reply.call = {7, 1};
    reply.result = Value(Tensor::empty(dtype, {kCount}));
    const Encoded encoded = encode({4, 3, {}, reply}, Limits());
    const Arrival arrival(encoded.header, Limits());
    EXPECT_FALSE(arrival.takes_long(encoded.payload));
    EXPECT_EQ(arrival.takes_long({encoded.payload[0].as_loan()}), dtype == Dtype::kInt64);
  }
}

// A stranger's message is decoded without a look at its frames before.
TEST(Loans, AFrameThatIsLostIsNeverRead) {
  for (const Dtype dtype : {Dtype::kBool, Dtype::kInt64, Dtype::kFloat64}) {
    Reply reply;
    reply.call = {7, 1};
    reply.result = Value(Tensor::empty(dtype, {kCount}));
    const Encoded encoded = encode({4, 3, {}, reply}, Limits());
    const Frame lost = Frame::lost(encoded.payload[0].size());
    EXPECT_THROW(decode(encoded.header, {lost}, Limits()), std::bad_alloc);
    EXPECT_THROW(decode(encoded.header, {lost.as_loan()}, Limits()), std::bad_alloc);
  }
}

// A hostile lender may say any place: where no number can be read it is copied, and not on the loop.
TEST(Loans, NumbersAtAnOddPlaceAreCopiedOffTheLoop) {
  Reply reply;
  reply.call = {7, 1};
  Tensor tensor = Tensor::empty(Dtype::kFloat64, {kCount});
  std::fill_n(tensor.mutable_data_as<double>(), kCount, 1.5);
  reply.result = Value(tensor);
  const Encoded encoded = encode({4, 3, {}, reply}, Limits());
  std::vector<std::byte> memory(encoded.payload[0].size() + 8);
  std::byte* const odd = memory.data() + 4;
  std::memcpy(odd, encoded.payload[0].data(), encoded.payload[0].size());
  const Frame loan = Frame(odd, encoded.payload[0].size(), nullptr).as_loan();
  EXPECT_TRUE(Arrival(encoded.header, Limits()).takes_long({loan}));
  const Message message = decode(encoded.header, {loan}, Limits());
  EXPECT_FALSE(result_of(message).is_protected());
  EXPECT_EQ(result_of(message).hold().data_as<double>()[kCount - 1], 1.5);
}

TEST(Loans, TheChecksumIsOfWhatTravels) {
  const std::vector<std::byte> one(100, std::byte{1}), two(100, std::byte{2});
  Encoded encoded = encode({4, 3, {}, all_bodies().front()}, Limits());
  const auto sealed = [&encoded](const std::vector<std::byte>& bytes, bool is_loan) {
    const Frame frame(bytes.data(), bytes.size(), nullptr);
    const Frame header = seal(encoded.header, Frames{is_loan ? frame.as_loan() : frame});
    return std::vector<std::byte>(header.data(), header.data() + header.size());
  };
  EXPECT_EQ(sealed(one, true), sealed(two, true));
  EXPECT_NE(sealed(one, false), sealed(two, false));
}

}  // namespace
}  // namespace distag::wire
