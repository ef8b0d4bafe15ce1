#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "sample_messages.h"
#include "support/expect.h"

namespace distag::wire {
namespace {

using testing::error_of;

Message round_trip(const Body& body, uint64_t number = 4, uint64_t ack = 3) {
  Encoded encoded = encode(Message{number, ack, {}, body}, Limits());
  return decode(encoded.header, encoded.payload, Limits());
}

template <typename T>
T round_trip_of(const T& body) {
  return std::get<T>(round_trip(body).body);
}

std::string bytes(const Encoded& encoded) {
  std::string all(reinterpret_cast<const char*>(encoded.header.data()), encoded.header.size());
  for (const Frame& frame : encoded.payload) all.append(reinterpret_cast<const char*>(frame.data()), frame.size());
  return all;
}

template <typename T>
const T& sample() {
  static const std::vector<Body> bodies = all_bodies();
  for (const Body& body : bodies) {
    if (const T* found = std::get_if<T>(&body)) return *found;
  }
  throw std::logic_error("no sample");
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.byte_size() == 0 || std::memcmp(a.contiguous().data(), b.contiguous().data(), a.byte_size()) == 0);
}

void expect_equal(const Error& a, const Error& b) {
  EXPECT_EQ(a.status(), b.status());
  EXPECT_EQ(a.message(), b.message());
  EXPECT_EQ(a.origin_rank(), b.origin_rank());
  EXPECT_EQ(a.may_have_run(), b.may_have_run());
}

TEST(RoundTrip, EveryBodyEncodesToTheSameBytesAfterDecoding) {
  for (const Body& body : all_bodies()) {
    Encoded first = encode(Message{4, 3, {}, body}, Limits());
    Message decoded = decode(first.header, first.payload, Limits());
    EXPECT_EQ(decoded.number, 4u);
    EXPECT_EQ(decoded.ack, 3u);
    ASSERT_EQ(decoded.body.index(), body.index()) << body_name(body);
    EXPECT_EQ(bytes(encode(decoded, Limits())), bytes(first)) << body_name(body);
  }
}

// -0.0 equals the default that FlatBuffers leaves out.
TEST(RoundTrip, ZerosKeepTheirSign) {
  Call call;
  call.call = Id{1, 2};
  call.function = "f";
  call.args = {Value(-0.0), Value(0.0), Value::map({{"value", Value(-0.0)}}), Value::list({Value(-0.0)})};
  const Values args = round_trip_of(call).args;
  EXPECT_TRUE(std::signbit(args.at(0).as_float64()));
  EXPECT_FALSE(std::signbit(args.at(1).as_float64()));
  EXPECT_TRUE(std::signbit(args.at(2).find("value")->as_float64()));
  EXPECT_TRUE(std::signbit(args.at(3).as_list().at(0).as_float64()));
}

TEST(RoundTrip, HelloKeepsAllFields) {
  Hello hello = round_trip_of(sample<Hello>());
  EXPECT_EQ(hello.job, "job");
  EXPECT_EQ(hello.protocol, 1u);
  EXPECT_EQ(hello.features, 6u);
  EXPECT_EQ(hello.name, "a");
  EXPECT_EQ(hello.rank, 1);
  EXPECT_EQ(hello.incarnation, 31u);
  EXPECT_EQ(hello.generation, 2u);
  EXPECT_EQ(hello.max_message_bytes, 99u);
  EXPECT_EQ(hello.endpoint, "ipc:///x");
  EXPECT_EQ(hello.wanted, 32u);
  EXPECT_EQ(hello.proof, (Proof{std::byte{7}, std::byte{8}}));
}

TEST(RoundTrip, AnswersToHelloKeepAllFields) {
  Welcome welcome = round_trip_of(Welcome{31, 7, {std::byte{7}}, "no descriptors"});
  EXPECT_EQ(welcome.incarnation, 31u);
  EXPECT_EQ(welcome.next, 7u);
  EXPECT_EQ(welcome.proof, Proof{std::byte{7}});
  EXPECT_EQ(welcome.lack, "no descriptors");
  Refuse refuse = round_trip_of(sample<Refuse>());
  EXPECT_EQ(refuse.reason, RefuseReason::kFenced);
  EXPECT_EQ(refuse.incarnation, 31u);
  EXPECT_EQ(refuse.text, "no");
}

TEST(RoundTrip, ChunkKeepsItsPiece) {
  Chunk chunk = round_trip_of(sample<Chunk>());
  EXPECT_EQ(chunk.transfer, 1u);
  EXPECT_EQ(chunk.offset, 10u);
  EXPECT_EQ(chunk.total, 15u);
  ASSERT_EQ(chunk.piece.size(), 5u);
  EXPECT_EQ(std::memcmp(chunk.piece.data(), "12345", 5), 0);
  Chunk abandoned = round_trip_of(Chunk{2, 0, 0, true, {}});
  EXPECT_TRUE(abandoned.abandoned);
  EXPECT_EQ(abandoned.transfer, 2u);
}

TEST(RoundTrip, CallKeepsValuesOfAllKinds) {
  Call call = round_trip_of(sample<Call>());
  EXPECT_EQ(call.call, (Id{1, 2}));
  EXPECT_EQ(call.function, "f");
  EXPECT_EQ(call.time_left, 5);
  EXPECT_EQ(call.label, "label");
  ASSERT_NE(call.trace_parent, nullptr);
  EXPECT_STREQ(call.trace_parent->c_str(), kTraceParent);
  EXPECT_FALSE(call.has_bad_trace_parent);
  EXPECT_EQ(call.metadata.context, (Id{11, 12}));
  EXPECT_EQ(call.metadata.creator_rank, 2);
  EXPECT_EQ(call.metadata.pair, (Id{15, 16}));
  EXPECT_EQ(call.metadata.tracked, (std::vector<bool>{true, false, true, false, true, false}));
  EXPECT_EQ(call.metadata.joined, (std::vector<Incarnation>{21, 22}));
  const Id pair{15, 16}, other{17, 18};
  EXPECT_EQ(call.metadata.lineage,
            (std::vector<AutogradMetadata::Link>{{pair, other, 1, 2}, {pair, {}, 2, 1}, {other, {}, 0, 0}}));

  const Values& args = call.args;
  const Values sent = all_values();
  ASSERT_EQ(args.size(), sent.size());
  EXPECT_TRUE(args[0].is_null());
  EXPECT_TRUE(args[1].as_bool());
  EXPECT_EQ(args[2].as_int64(), -5);
  EXPECT_EQ(args[3].as_float64(), 1.25);
  EXPECT_EQ(args[4].as_text(), "h\xC3\xA9");
  EXPECT_EQ(args[5].as_text(), std::string(9000, 't'));
  EXPECT_EQ(args[6].as_bytes(), Value::Bytes(3, std::byte{7}));
  EXPECT_EQ(args[7].as_bytes(), Value::Bytes(70000, std::byte{7}));
  for (size_t i = 8; i < 13; ++i) EXPECT_TRUE(equal(args[i].as_tensor(), sent[i].as_tensor())) << i;
  ASSERT_EQ(args[13].as_list().size(), 3u);
  EXPECT_EQ(args[13].as_list()[1].as_int64(), -2);
  EXPECT_TRUE(args[14].as_list().empty());
  EXPECT_EQ(args[15].find("b")->as_float64(), 2.5);
  EXPECT_EQ(args[15].find("")->as_text(), "x");
  EXPECT_TRUE(args[15].find("a")->as_list()[1].as_bool());
  EXPECT_EQ(args[15].find("a")->as_list()[2].as_tensor().shape(), (Dims{0, 3}));
}

TEST(RoundTrip, RepliesKeepResultOrError) {
  Reply reply = round_trip_of(sample<Reply>());
  EXPECT_FALSE(reply.failed);
  EXPECT_TRUE(equal(reply.result.as_tensor(), floats({2})));
  EXPECT_EQ(reply.metadata.tracked, std::vector<bool>{true});
  Error error = Error(static_cast<Status>(1007), "host").set_origin_rank(5);
  Reply failed = round_trip_of(Reply{{1, 2}, true, error, {}, {}});
  EXPECT_TRUE(failed.failed);
  expect_equal(failed.error, error);
  EXPECT_FALSE(failed.metadata.context);
}

TEST(RoundTrip, GroupMessagesKeepAllFields) {
  Join join = round_trip_of(sample<Join>());
  EXPECT_EQ(join.job, "job");
  EXPECT_EQ(join.world_size, 4);
  EXPECT_EQ(join.member.rank, 1);
  EXPECT_EQ(join.member.name, "b");
  EXPECT_EQ(join.member.endpoint, "tcp://127.0.0.1:5");
  EXPECT_EQ(join.member.incarnation, 31u);
  EXPECT_EQ(join.member.generation, 2u);
  EXPECT_EQ(join.member.max_message_bytes, 77u);
  EXPECT_EQ(join.host, "node7");
  EXPECT_EQ(join.process, 4711u);
  Roster roster = round_trip_of(sample<Roster>());
  EXPECT_TRUE(roster.refused);
  EXPECT_EQ(roster.error.message(), "why");
  EXPECT_EQ(roster.members.size(), 2u);
  EXPECT_EQ(roster.missing, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(roster.offset, 40u);
  EXPECT_EQ(roster.total, 42u);
  ShutdownPoll ask = round_trip_of(sample<ShutdownPoll>());
  EXPECT_EQ(ask.round, 9u);
  EXPECT_EQ(ask.missing, std::vector<Incarnation>{41});
  ShutdownAnswer answer = round_trip_of(sample<ShutdownAnswer>());
  EXPECT_TRUE(answer.stopping && answer.idle);
  ASSERT_EQ(answer.counts.size(), 2u);
  EXPECT_EQ(answer.counts[1].peer, 42u);
  EXPECT_EQ(answer.counts[1].requests_sent, 7u);
  EXPECT_EQ(answer.counts[1].requests_received, 8u);
  EXPECT_EQ(answer.lost, std::vector<Incarnation>{43});
  EXPECT_EQ(round_trip_of(ShutdownVerdict{9}).round, 9u);
}

TEST(RoundTrip, PassMessagesKeepAllFields) {
  EXPECT_EQ(round_trip_of(sample<Joined>()).pass, (Id{13, 14}));
  EXPECT_FALSE(round_trip_of(Joined{{11, 12}, {}}).pass);
  EXPECT_EQ(round_trip_of(sample<Release>()).contexts, (std::vector<Id>{{11, 12}, {13, 14}}));
  Discover discover = round_trip_of(sample<Discover>());
  EXPECT_EQ(discover.request, (Id{17, 18}));
  EXPECT_TRUE(discover.retain_graph);
  ASSERT_EQ(discover.pairs.size(), 2u);
  EXPECT_EQ(discover.pairs[0].pair_maker, 15u);
  EXPECT_EQ(discover.pairs[0].pair_counter, 16u);
  EXPECT_EQ(discover.pairs[0].bits, (std::vector<bool>{true, false}));
  Discovered discovered = round_trip_of(sample<Discovered>());
  expect_equal(discovered.error, sample<Discovered>().error);
  EXPECT_EQ(discovered.participants, (std::vector<Incarnation>{51, 52}));
  EXPECT_TRUE(round_trip_of(sample<Start>()).retain_graph);
  EXPECT_TRUE(round_trip_of(sample<Start>()).creates_graph && discover.creates_graph);
  EXPECT_FALSE(round_trip_of(Start{{1, 2}, {3, 4}, true}).creates_graph);
  Grad grad = round_trip_of(sample<Grad>());
  EXPECT_EQ(grad.pair, (Id{15, 16}));
  EXPECT_TRUE(grad.retain_graph && grad.fast);
  EXPECT_EQ(grad.live, (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(equal(grad.gradients[0].as_tensor(), floats({2})));
  EXPECT_TRUE(grad.gradients[1].is_null());
  EXPECT_TRUE(grad.planned && grad.done);
  EXPECT_EQ(grad.grads_sent, 5u);
  EXPECT_EQ(grad.grads_received, 6u);
  EXPECT_TRUE(grad.creates_graph);
  EXPECT_EQ(grad.recording.context, grad.context);
  EXPECT_EQ(grad.recording.pair, (Id{25, 26}));
  EXPECT_EQ(grad.recording.tracked, (std::vector<bool>{true}));
  EXPECT_EQ(grad.recording.lineage, sample<Grad>().recording.lineage);
  const Grad plain = round_trip_of(Grad{{1, 2}, {3, 4}, {5, 6}, false, false, {}, {}});
  EXPECT_FALSE(plain.done || plain.creates_graph || plain.recording.context);
  const Expect expect = round_trip_of(sample<Expect>());
  EXPECT_TRUE(expect.retain_graph && expect.creates_graph);
  EXPECT_EQ(expect.check, 63u);
  ASSERT_EQ(expect.sends.size(), 2u);
  EXPECT_EQ(expect.sends[0].pair_maker, 15u);
  EXPECT_EQ(expect.sends[0].pair_counter, 16u);
  EXPECT_EQ(expect.sends[0].bits, (std::vector<bool>{true, false}));
  Done done = round_trip_of(sample<Done>());
  EXPECT_TRUE(done.failed && done.replan && done.creates_graph);
  EXPECT_EQ(done.grads_sent, 3u);
  EXPECT_EQ(done.grads_received, 4u);
  EXPECT_EQ(done.grads_to, std::vector<Incarnation>{53});
  expect_equal(round_trip_of(sample<Verdict>()).error, sample<Verdict>().error);
  EXPECT_TRUE(round_trip_of(Verdict{{1, 2}, {3, 4}, true, {}}).commit);
  EXPECT_EQ(round_trip_of(sample<Probe>()).round, 5u);
  ProbeAnswer answer = round_trip_of(sample<ProbeAnswer>());
  EXPECT_TRUE(answer.idle);
  EXPECT_EQ(answer.unreached, (std::vector<std::string>{"call \"f\" on \"b\"", "other"}));
  EXPECT_EQ(answer.grads_to, (std::vector<Incarnation>{54, 55}));
  EXPECT_EQ(round_trip_of(sample<Holders>()).holders, (std::vector<Incarnation>{61, 62}));
}

TEST(RoundTrip, SmallPayloadLiesInTheHeaderFrameAndLargeInFramesWithoutACopy) {
  Tensor large = floats({64, 1024});
  Encoded encoded =
      encode(Message{1, 0, {}, Call{{1, 2}, "f", {Value(floats({1})), Value(large)}, 5, {}, ""}}, Limits());
  ASSERT_EQ(encoded.payload.size(), 1u);
  EXPECT_EQ(encoded.payload[0].data(), large.data());
  EXPECT_EQ(encoded.payload_bytes, large.byte_size());
  Message decoded = decode(encoded.header, encoded.payload, Limits());
  const Tensor& received = std::get<Call>(decoded.body).args[1].as_tensor();
  EXPECT_EQ(received.data(), large.data()) << "aligned memory is taken over";
}

TEST(RoundTrip, AWriteByEitherSideIsNotSeenByTheOther) {
  Tensor sent = floats({64, 1024});
  Encoded encoded = encode(Message{1, 0, {}, Call{{1, 2}, "f", {Value(sent)}, 5, {}, ""}}, Limits());
  sent.mutable_data_as<float>()[0] = 77;
  Message decoded = decode(encoded.header, encoded.payload, Limits());
  Tensor received = std::get<Call>(decoded.body).args[0].as_tensor();
  EXPECT_EQ(received.data_as<float>()[0], 0.5f);
  received.mutable_data_as<float>()[0] = 88;
  EXPECT_EQ(sent.data_as<float>()[0], 77.0f);
}

TEST(RoundTrip, MisalignedFramesAreCopied) {
  Tensor large = floats({4096});
  Encoded encoded = encode(Message{1, 0, {}, Call{{1, 2}, "f", {Value(large)}, 5, {}, ""}}, Limits());
  auto memory = std::make_shared<std::vector<std::byte>>(large.byte_size() + 1);
  std::memcpy(memory->data() + 1, large.data(), large.byte_size());
  Message decoded = decode(encoded.header, {Frame(memory->data() + 1, large.byte_size(), memory)}, Limits());
  EXPECT_TRUE(equal(std::get<Call>(decoded.body).args[0].as_tensor(), large));
}

TEST(RoundTrip, StridedTensorsArriveRowMajor) {
  Tensor matrix = floats({3, 2000});
  Tensor transposed = matrix.view({2000, 3}, {1, 2000}, 0);
  Call call = round_trip_of(Call{{1, 2}, "f", {Value(transposed)}, 5, {}, ""});
  EXPECT_TRUE(call.args[0].as_tensor().is_contiguous());
  EXPECT_TRUE(equal(call.args[0].as_tensor(), transposed));
}

TEST(RoundTrip, TransfersAreKept) {
  Encoded encoded = encode(Message{1, 0, {{5, 0}, {6, 2}}, Ping{}}, Limits());
  Arrival arrival(encoded.header, Limits());
  ASSERT_EQ(arrival.transfer_count(), 2u);
  EXPECT_EQ(arrival.transfer(1).id, 6u);
  EXPECT_EQ(arrival.transfer(1).frame, 2u);
}

TEST(RoundTrip, WithNumbersChangesNothingElse) {
  for (const Body& body : all_bodies()) {
    Encoded encoded = encode(Message{4, 3, {}, body}, Limits());
    Encoded wanted = encode(Message{9, 8, {}, body}, Limits());
    encoded.header = with_numbers(encoded.header, 9, 8);
    EXPECT_EQ(bytes(encoded), bytes(wanted)) << body_name(body);
  }
}

TEST(Encode, TextsOfErrorsAreCutAndMended) {
  Error error(Status::kInternal, std::string(4095, 'a') + "\xC3\xA9");
  EXPECT_EQ(round_trip_of(Reply{{1, 2}, true, error, {}, {}}).error.message(), std::string(4095, 'a'));
  Error invalid(Status::kInternal, std::string("bad\xFF\0byte", 9));
  EXPECT_EQ(round_trip_of(Reply{{1, 2}, true, invalid, {}, {}}).error.message(), "bad??byte");
}

TEST(Encode, RefusesWhatCannotTravel) {
  auto object = std::make_shared<HostObject>("model", nullptr, Task());
  Call call{{1, 2}, "f", {Value(object)}, 5, {}, ""};
  for (const Error& error : {error_of([&] {
                               encode(Message{1, 0, {}, call}, Limits());
                             }),
                             error_of([&] { check(call, Limits()); })}) {
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    EXPECT_NE(error.message().find("\"model\" cannot travel"), std::string::npos) << error.message();
  }
}

TEST(Encode, RefusesWhatIsTooLarge) {
  Limits limits;
  limits.max_message_bytes = 100000;
  Call call{{1, 2}, "f", {Value(floats({40000}))}, 5, {}, ""};
  for (const Error& error : {error_of([&] {
                               encode(Message{1, 0, {}, call}, limits);
                             }),
                             error_of([&] { check(call, limits); })}) {
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    EXPECT_NE(error.message().find("exceeds the limit of 100000"), std::string::npos) << error.message();
  }
}

// A header of more than 64 KiB is a payload frame of its own, in front of the others.
TEST(RoundTrip, LongHeadersAreTheFirstPayloadFrame) {
  const Call call{{1, 2}, "f", {Value::list(Value::List(8000, Value(-0.5))), Value(floats({5000}))}, 5, {}, "label"};
  const Encoded encoded = encode(Message{7, 6, {}, call}, Limits());
  ASSERT_TRUE(encoded.is_long);
  EXPECT_LT(encoded.header.size(), 200u);
  ASSERT_EQ(encoded.payload.size(), 2u);
  EXPECT_EQ(encoded.payload_bytes, encoded.payload[0].size() + 20000);

  const Frame renumbered = with_numbers(encoded.header, 9, 8);
  const Message message = decode(renumbered, encoded.payload, Limits());
  EXPECT_EQ(message.number, 9u);
  EXPECT_EQ(message.ack, 8u);
  const auto& decoded = std::get<Call>(message.body);
  EXPECT_EQ(decoded.label, "label");
  EXPECT_EQ(decoded.args[0].as_list().size(), 8000u);
  EXPECT_EQ(decoded.args[0].as_list()[7999].as_float64(), -0.5);
  EXPECT_EQ(decoded.args[1].as_tensor().byte_size(), 20000u);
}

TEST(RoundTrip, LongHeadersThatWentAheadAreNamed) {
  const Call call{{1, 2}, "f", {Value::list(Value::List(8000, Value(1.0)))}, 5, {}, ""};
  Message message{7, 6, {{3, 0}}, call};
  const Encoded encoded = encode(message, Limits());
  const Arrival arrival(encode_long(message, 4), Limits());
  EXPECT_TRUE(arrival.is_long());
  EXPECT_EQ(arrival.long_transfer(), 4u);
  EXPECT_EQ(arrival.transfer(0).id, 3u);
  EXPECT_EQ(std::get<Call>(arrival.decode(encoded.payload).body).args[0].as_list().size(), 8000u);
}

TEST(Encode, RefusesALongHeaderThatIsTooLong) {
  Limits limits;
  limits.max_long_header_bytes = 128 << 10;
  Call call{{1, 2}, "f", {Value::list(Value::List(4000, Value(1.0)))}, 5, {}, ""};
  EXPECT_GT(check(call, limits), size_t{64} << 10);
  call.args.front() = Value::list(Value::List(16000, Value(1.0)));
  Error error = error_of([&] { check(call, limits); });
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  EXPECT_NE(error.message().find("exceeds the limit of"), std::string::npos) << error.message();
}

TEST(Encode, RefusesNamesThatAreTooLong) {
  Error error = error_of([] { check(Call{{1, 2}, std::string(128, 'f'), {}, 5, {}, ""}, Limits()); });
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
}

TEST(Encode, LongListsOfIntegersTravelAsPayload) {
  Value::List items;
  for (int64_t i = 0; i < 100000; ++i) items.emplace_back(i);
  Call call = round_trip_of(Call{{1, 2}, "f", {Value::list(items)}, 5, {}, ""});
  EXPECT_EQ(call.args[0].as_list().back().as_int64(), 99999);
}

TEST(Prepare, KeepsTheValuesOfNow) {
  Tensor tensor = floats({4});
  Value prepared = prepare(Value::list({Value(tensor), Value(int64_t{1})}));
  tensor.mutable_data_as<float>()[0] = 9;
  EXPECT_EQ(prepared.as_list()[0].as_tensor().data_as<float>()[0], 0.5f);
}

}  // namespace
}  // namespace distag::wire
