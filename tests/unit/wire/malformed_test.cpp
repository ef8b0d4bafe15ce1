#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "message_generated.h"
#include "sample_messages.h"

namespace distag::wire {
namespace {

using flatbuffers::FlatBufferBuilder;

Frame frame_of(const std::string& bytes) { return Frame::copy_of(bytes.data(), bytes.size()); }

// A header made by hand: `build` gives the type and the table of the body.
struct Raw {
  protocol::Body type;
  flatbuffers::Offset<void> table;
};
Frame raw(const std::function<Raw(FlatBufferBuilder&)>& build, const std::string& tail = "",
          const std::vector<protocol::Transfer>& transfers = {}) {
  FlatBufferBuilder builder;
  Raw body = build(builder);
  auto listed = builder.CreateVectorOfStructs(transfers);
  protocol::Place place(1, 0);
  builder.FinishSizePrefixed(protocol::CreateMessage(builder, &place, listed, body.type, body.table),
                             protocol::MessageIdentifier());
  return frame_of(std::string(reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()) + tail);
}

void expect_malformed(const Frame& header, const Frames& payload, const std::string& why, const Limits& limits = {}) {
  try {
    Message message = decode(header, payload, limits);
    ADD_FAILURE() << "taken as " << body_name(message.body) << ", not refused for: " << why;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kProtocol);
    EXPECT_NE(error.message().find(why), std::string::npos) << error.message() << "\nwanted: " << why;
  }
}

// A REPLY whose result is the value that `build` makes.
using BuildValue = std::function<flatbuffers::Offset<void>(FlatBufferBuilder&)>;
Frame raw_value(protocol::Value type, const BuildValue& build, const std::string& tail = "") {
  return raw(
      [&](FlatBufferBuilder& builder) {
        auto value = build(builder);
        protocol::Id id(1, 2);
        return Raw{protocol::Body::Reply, protocol::CreateReply(builder, &id, 0, type, value).Union()};
      },
      tail);
}

Frame raw_tensor(protocol::Dtype dtype, const std::vector<int64_t>& shape, protocol::Piece piece,
                 const std::string& tail = "") {
  return raw_value(
      protocol::Value::Tensor,
      [&](FlatBufferBuilder& builder) {
        return protocol::CreateTensor(builder, dtype, builder.CreateVector(shape), &piece).Union();
      },
      tail);
}

Frame encoded_header(const Body& body) { return encode(Message{1, 0, {}, body}, Limits()).header; }
Frames encoded_payload(const Body& body) { return encode(Message{1, 0, {}, body}, Limits()).payload; }

constexpr auto kTail = protocol::Lane::Tail;
constexpr auto kFrame = protocol::Lane::Frame;
constexpr auto kFloat32 = protocol::Dtype::Float32;

// ---- sizes and structure ----

TEST(Malformed, HeadersThatAreNone) {
  expect_malformed(Frame(), {}, "cut off");
  expect_malformed(frame_of("abc"), {}, "cut off");
  expect_malformed(frame_of(std::string(4, '\0')), {}, "no message of distag");
  expect_malformed(frame_of(std::string(200, '\xFF')), {}, "cut off");
  expect_malformed(frame_of(std::string(200, '\0')), {}, "no message of distag");
}

TEST(Malformed, HeadersThatAreTooLarge) {
  expect_malformed(frame_of(std::string((64 << 10) + 1, 'x')), {}, "a header of 65537 bytes, more than 65536");
}

TEST(Malformed, LongHeaders) {
  const Message message{7, 6, {}, Call{{1, 2}, "f", {Value::list(Value::List(8000, Value(1.0)))}, 5, {}, ""}};
  const Encoded encoded = encode(message, Limits());
  expect_malformed(encoded.header, {}, "a LONG without its header");
  expect_malformed(encoded.header, {frame_of("abc")}, "cut off");
  expect_malformed(encoded.header, {encoded.header}, "a LONG for a message that is never one");
  expect_malformed(encoded.header, {encoded_header(Ping{})}, "a LONG for a message that is never one");
  expect_malformed(encoded.header, {encoded.payload[0], frame_of("abc")}, "belongs to nothing");
  Limits limits;
  limits.max_long_header_bytes = 100000;
  expect_malformed(encoded.header, encoded.payload, "more than 100000", limits);
  // Every 100th truncation, and bytes that flip, never more than an Error.
  for (size_t size = 0; size < encoded.payload[0].size(); size += 100) {
    EXPECT_THROW(decode(encoded.header, {Frame::copy_of(encoded.payload[0].data(), size)}, Limits()), Error) << size;
  }
}

TEST(Malformed, MessagesThatAreTooLarge) {
  Limits limits;
  limits.max_message_bytes = 1000;
  Body call = Call{{1, 2}, "f", {Value(floats({2000}))}, 5, {}, ""};
  expect_malformed(encoded_header(call), encoded_payload(call), "more than 1000 bytes in all", limits);
}

TEST(Malformed, EveryTruncationOfEveryHeader) {
  for (const Body& body : all_bodies()) {
    Encoded encoded = encode(Message{1, 0, {}, body}, Limits());
    for (size_t size = 0; size < encoded.header.size(); ++size) {
      Frame cut = Frame::copy_of(encoded.header.data(), size);
      EXPECT_THROW(decode(cut, encoded.payload, Limits()), Error) << body_name(body) << " cut to " << size;
    }
  }
}

TEST(Malformed, AnotherIdentifier) {
  std::string bytes(reinterpret_cast<const char*>(encoded_header(Ping{}).data()), encoded_header(Ping{}).size());
  bytes.replace(bytes.find("DTG1"), 4, "DTG2");
  expect_malformed(frame_of(bytes), {}, "no message of distag");
}

TEST(Malformed, AnUnknownBody) {
  expect_malformed(raw([](FlatBufferBuilder& builder) {
                     return Raw{static_cast<protocol::Body>(200), protocol::CreatePing(builder).Union()};
                   }),
                   {}, "a body of kind 200");
}

TEST(Malformed, TooManyTables) {
  expect_malformed(raw_value(protocol::Value::List,
                             [](FlatBufferBuilder& builder) {
                               std::vector<protocol::Value> types(9000, protocol::Value::Null);
                               auto null = protocol::CreateNull(builder).Union();
                               std::vector<flatbuffers::Offset<void>> items(9000, null);
                               auto all_types = builder.CreateVector<protocol::Value>(types);
                               return protocol::CreateList(builder, all_types, builder.CreateVector(items)).Union();
                             }),
                   {}, "no message of distag");
}

TEST(Malformed, SharedStringsDoNotMultiply) {
  expect_malformed(raw([](FlatBufferBuilder& builder) {
                     auto text = builder.CreateString(std::string(1000, 'x'));
                     auto all = builder.CreateVector(std::vector<flatbuffers::Offset<flatbuffers::String>>(1000, text));
                     protocol::Id id(1, 2);
                     return Raw{protocol::Body::ProbeAnswer,
                                protocol::CreateProbeAnswer(builder, &id, &id, 1, true, 1, 1, all).Union()};
                   }),
                   {}, "overlap");
}

// The verifier looks at the alignment of a vector's length only; of two places four bytes apart one is wrong.
TEST(Malformed, ListsWhoseItemsAreNotAligned) {
  auto release = [](size_t padding) {
    return raw([padding](FlatBufferBuilder& builder) {
      builder.CreateVector(std::vector<uint32_t>(padding));
      builder.StartVector(sizeof(protocol::Id), 1);
      protocol::Id id(1, 2);
      builder.PushBytes(reinterpret_cast<const uint8_t*>(&id), sizeof id);
      flatbuffers::Offset<flatbuffers::Vector<const protocol::Id*>> ids(builder.EndVector(1));
      return Raw{protocol::Body::Release, protocol::CreateRelease(builder, ids).Union()};
    });
  };
  int refused = 0;
  for (size_t padding : {size_t{0}, size_t{1}}) {
    try {
      EXPECT_EQ(std::get<Release>(decode(release(padding), {}, Limits()).body).contexts[0], (Id{1, 2}));
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(error.message().find("not aligned"), std::string::npos) << error.message();
    }
  }
  EXPECT_EQ(refused, 1);
}

// ---- payload ----

TEST(Malformed, PayloadThatBelongsToNothing) {
  expect_malformed(encoded_header(Ping{}), {frame_of("x")}, "PING with payload that belongs to nothing");
  expect_malformed(raw(
                       [](FlatBufferBuilder& builder) {
                         return Raw{protocol::Body::Ping, protocol::CreatePing(builder).Union()};
                       },
                       "tail"),
                   {}, "belongs to nothing");
}

TEST(Malformed, PayloadThatIsMissing) {
  expect_malformed(raw_tensor(kFloat32, {2}, {8, kFrame}), {}, "the payload frame of a tensor is missing");
  expect_malformed(raw_tensor(kFloat32, {2}, {8, kTail}, "1234567"), {}, "reaches past the end");
  expect_malformed(raw_tensor(kFloat32, {2}, {8, static_cast<protocol::Lane>(9)}), {}, "lane 9");
  expect_malformed(raw_tensor(kFloat32, {2}, {8, kFrame}), {frame_of("1234567")}, "has 8 bytes, its payload frame 7");
}

TEST(Malformed, TensorsThatCannotBe) {
  using protocol::Dtype;
  expect_malformed(raw_tensor(Dtype::None, {2}, {8, kTail}), {}, "a tensor of dtype 0");
  expect_malformed(raw_tensor(static_cast<Dtype>(77), {2}, {8, kTail}), {}, "a tensor of dtype 77");
  expect_malformed(raw_tensor(kFloat32, std::vector<int64_t>(17, 1), {4, kTail}), {}, "rank 17, more than 16");
  expect_malformed(raw_tensor(kFloat32, {-1}, {4, kTail}), {}, "a size of -1");
  expect_malformed(raw_tensor(kFloat32, {int64_t{1} << 40, int64_t{1} << 40}, {0, kTail}), {}, "memory can hold");
  expect_malformed(raw_tensor(kFloat32, {int64_t{1} << 40, int64_t{1} << 40, 0}, {0, kTail}), {}, "memory can hold");
  expect_malformed(raw_tensor(kFloat32, {3}, {8, kTail}, "12345678"), {}, "of 12 bytes has 8 bytes of payload");
  expect_malformed(raw_tensor(kFloat32, {int64_t{1} << 59}, {uint64_t{1} << 61, kTail}), {}, "reaches past the end");
  expect_malformed(raw_tensor(Dtype::Bool, {3}, {3, kTail}, std::string("\0\1\2", 3)), {}, "neither 0 nor 1");
}

TEST(Malformed, TextsThatAreNone) {
  auto text = [](const std::string& bytes) {
    return raw_value(
        protocol::Value::Text,
        [&](FlatBufferBuilder& builder) {
          protocol::Piece piece(bytes.size(), kTail);
          return protocol::CreateText(builder, &piece).Union();
        },
        bytes);
  };
  expect_malformed(text("\xFF"), {}, "a text is not valid UTF-8");
  expect_malformed(text(std::string("a\0b", 3)), {}, "a text holds a zero byte");
}

TEST(Malformed, IntegerListsOfOddLength) {
  expect_malformed(raw_value(
                       protocol::Value::Int64List,
                       [](FlatBufferBuilder& builder) {
                         protocol::Piece piece(7, kTail);
                         return protocol::CreateInt64List(builder, &piece).Union();
                       },
                       "1234567"),
                   {}, "an int64 list of 7 bytes");
}

TEST(Malformed, ValuesThatNestTooDeep) {
  auto nested = [](int depth) {
    return raw_value(protocol::Value::List, [depth](FlatBufferBuilder& builder) {
      flatbuffers::Offset<void> inner = protocol::CreateNull(builder).Union();
      protocol::Value type = protocol::Value::Null;
      for (int i = 0; i < depth; ++i) {
        auto types = builder.CreateVector<protocol::Value>({type});
        inner = protocol::CreateList(builder, types, builder.CreateVector(&inner, 1)).Union();
        type = protocol::Value::List;
      }
      return inner;
    });
  };
  EXPECT_EQ(std::get<Reply>(decode(nested(16), {}, Limits()).body).result.depth(), 16u);
  expect_malformed(nested(17), {}, "nest more than 16 deep");
  expect_malformed(nested(200), {}, "no message of distag");
}

TEST(Malformed, MapsWhoseKeysAreNotSortedAndUnique) {
  auto map = [](const std::vector<std::string>& keys) {
    return raw_value(protocol::Value::Map, [&](FlatBufferBuilder& builder) {
      std::vector<flatbuffers::Offset<protocol::Entry>> entries;
      for (const std::string& key : keys) {
        auto name = builder.CreateString(key);
        auto null = protocol::CreateNull(builder).Union();
        entries.push_back(protocol::CreateEntry(builder, name, protocol::Value::Null, null));
      }
      return protocol::CreateMap(builder, builder.CreateVector(entries)).Union();
    });
  };
  EXPECT_NO_THROW(decode(map({"a", "b"}), {}, Limits()));
  expect_malformed(map({"b", "a"}), {}, "not sorted and unique");
  expect_malformed(map({"a", "a"}), {}, "not sorted and unique");
  expect_malformed(map({"\xFF"}), {}, "a key is not valid UTF-8");
}

TEST(Malformed, UnknownKindsOfValue) {
  expect_malformed(raw_value(static_cast<protocol::Value>(99),
                             [](FlatBufferBuilder& builder) { return protocol::CreateNull(builder).Union(); }),
                   {}, "a value of kind 99");
}

// ---- fields ----

TEST(Malformed, IdsWithoutAMaker) {
  expect_malformed(encoded_header(Cancel{{0, 7}}), {}, "a call without a maker");
  expect_malformed(encoded_header(Probe{{1, 2}, {0, 2}, 1}), {}, "a pass without a maker");
}

TEST(Malformed, NamesThatAreEmptyOrTooLong) {
  auto call = [](const std::string& function) {
    return raw([&](FlatBufferBuilder& builder) {
      auto name = builder.CreateString(function);
      protocol::Id id(1, 2);
      return Raw{protocol::Body::Call, protocol::CreateCall(builder, &id, name).Union()};
    });
  };
  EXPECT_NO_THROW(decode(call(std::string(127, 'f')), {}, Limits()));
  expect_malformed(call(""), {}, "a name of a function is empty");
  expect_malformed(call(std::string(128, 'f')), {}, "a name of a function of 128 bytes, more than 127");
}

// Not the message is refused, as the standard has it; what is kept is as long as one of version 00.
TEST(Malformed, TraceparentsAreDroppedAlone) {
  const Call long_one{{1, 2}, "f", {Value::list(Value::List(8000, Value(1.0)))}, 5, {}, ""};
  const Frame long_message = encoded_header(long_one);  // its header is the first payload frame
  auto call = [&long_message](const std::string& text) {
    const Frame header = raw([&text](FlatBufferBuilder& builder) {
      auto name = builder.CreateString("f");
      auto traceparent = builder.CreateString(text);
      protocol::Id id(1, 2);
      return Raw{protocol::Body::Call,
                 protocol::CreateCall(builder, &id, name, 0, 0, -1, 0, 0, nullptr, 9, traceparent).Union()};
    });
    const bool is_long = header.size() > size_t{64} << 10;
    const Message message = is_long ? decode(long_message, {header}, Limits()) : decode(header, {}, Limits());
    return std::get<Call>(message.body);
  };
  const std::string good = kTraceParent;
  const std::string later = "01" + good.substr(2);
  for (const std::string& taken : {good, later, later + '-', later + "-" + std::string(60000, '\xFF'),
                                   later + "-" + std::string(size_t{16} << 20, '0')}) {
    const Call decoded = call(taken);
    ASSERT_NE(decoded.trace_parent, nullptr) << taken.substr(0, 80);
    EXPECT_EQ(decoded.trace_parent->text(), good);
    EXPECT_FALSE(decoded.has_bad_trace_parent);
    EXPECT_EQ(decoded.cost, 9u);
  }
  std::string zero_within = good;
  zero_within[40] = '\0';
  for (const std::string& dropped :
       {std::string(), good.substr(1), good + '0', good + '\0', good + "-more", "ff" + good.substr(2), zero_within,
        std::string(60000, '0'), std::string(size_t{16} << 20, '0'), std::string(55, '\0'),
        good.substr(0, 3) + std::string(32, '0') + good.substr(35),
        good.substr(0, 3) + std::string(32, 'A') + good.substr(35), later + "more"}) {
    const Call decoded = call(dropped);
    EXPECT_EQ(decoded.trace_parent, nullptr) << dropped.substr(0, 80);
    EXPECT_TRUE(decoded.has_bad_trace_parent) << dropped.substr(0, 80);
    EXPECT_EQ(decoded.function, "f");
    EXPECT_EQ(decoded.cost, 9u);
  }
}

TEST(Malformed, FieldsOutOfRange) {
  Hello hello{"job", 1, 0, "a", -1, 31, 2, "ipc:///x", 32};
  expect_malformed(encoded_header(hello), {}, "a worker of rank -1");
  hello.rank = 0;
  hello.incarnation = 0;
  expect_malformed(encoded_header(hello), {}, "incarnation 0");
  expect_malformed(encoded_header(Welcome{1, 0}), {}, "number 0 expected next");
  expect_malformed(encoded_header(Call{{1, 2}, "f", {}, -2, {}, ""}), {}, "a call with -2 ns left");
  Error negative(static_cast<Status>(-3), "x");
  expect_malformed(encoded_header(Reply{{1, 2}, true, negative, {}, {}}), {}, "an error of status -3");
  AutogradMetadata metadata;
  metadata.context = {1, 2};
  expect_malformed(encoded_header(Call{{1, 2}, "f", {}, 1, metadata, ""}), {}, "a context of rank -1");
}

TEST(Malformed, RecordingsThatDoNotFitTheValues) {
  Call call{{1, 2}, "f", {Value(floats({1}))}, 5, {{1, 2}, 0, {3, 4}, {true, false}, {}}, ""};
  expect_malformed(encoded_header(call), {}, "2 tracked bits for 1 tensors");
  expect_malformed(
      raw([](FlatBufferBuilder& builder) {
        auto name = builder.CreateString("f");
        auto tracked = builder.CreateVector(std::vector<uint8_t>{1});
        protocol::Id id(1, 2);
        auto metadata = protocol::CreateRecording(builder, &id, 0, nullptr, tracked);
        return Raw{protocol::Body::Call, protocol::CreateCall(builder, &id, name, 0, 0, -1, metadata).Union()};
      }),
      {}, "tracked tensors without a pair");
}

TEST(Malformed, LineageThatSaysNothing) {
  Call call{{1, 2}, "f", {}, 5, {{1, 2}, 0, {}, {}, {}, {{{3, 4}, {}, 0, 0}}}, ""};
  expect_malformed(encoded_header(call), {}, "lineage without a pair");
  call = {{1, 2}, "f", {Value(floats({1}))}, 5, {{1, 2}, 0, {3, 4}, {true}, {}, {{{3, 4}, {}, 0, 2}}}, ""};
  expect_malformed(encoded_header(call), {}, "a link to nothing known");
  call.metadata.lineage = {{{}, {3, 4}, 0, 0}};
  expect_malformed(encoded_header(call), {}, "a pair without a maker");
}

TEST(Malformed, PlansOfNothing) {
  expect_malformed(encoded_header(Expect{{1, 2}, {3, 4}, false, {}, 5}), {}, "an EXPECT of nothing");
  expect_malformed(encoded_header(Done{{1, 2}, {3, 4}, false, {}, 0, 0, {}, true}), {},
                   "a plan that did not hold, without a reason");
}

TEST(Malformed, GradientsThatDoNotFitTheirBits) {
  Grad grad{{1, 2}, {3, 4}, {5, 6}, false, false, {true, true}, {Value()}};
  expect_malformed(encoded_header(grad), {}, "1 gradients for 2 live bits");
  grad = {{1, 2}, {3, 4}, {5, 6}, false, false, {true}, {Value(int64_t{1})}};
  expect_malformed(encoded_header(grad), {}, "a gradient that is an int64");
  expect_malformed(
      raw([](FlatBufferBuilder& builder) {
        auto live = builder.CreateVector(std::vector<uint8_t>{2});
        protocol::Id id(1, 2);
        return Raw{protocol::Body::Grad, protocol::CreateGrad(builder, &id, &id, &id, false, false, live).Union()};
      }),
      {}, "a bit of 2");
}

TEST(Malformed, GradientsWhoseHistoryDoesNotFit) {
  Grad grad{{1, 2}, {3, 4}, {5, 6}, true, false, {true}, {Value()}};
  grad.recording = {{1, 2}, 0, {7, 8}, {true}, {}, {}};
  expect_malformed(encoded_header(grad), {}, "gradients with a history, in a pass that gives none");
  grad.creates_graph = true;
  expect_malformed(encoded_header(grad), {}, "1 tracked bits for 0 tensors");
}

TEST(Malformed, AnswersWithTwoEndsOrNone) {
  auto reply = [](bool with_error, bool with_result) {
    return raw([=](FlatBufferBuilder& builder) {
      flatbuffers::Offset<protocol::Error> error;
      if (with_error) error = protocol::CreateError(builder, 10, builder.CreateString("x"));
      flatbuffers::Offset<void> result;
      if (with_result) result = protocol::CreateNull(builder).Union();
      protocol::Id id(1, 2);
      auto type = with_result ? protocol::Value::Null : protocol::Value::NONE;
      return Raw{protocol::Body::Reply, protocol::CreateReply(builder, &id, error, type, result).Union()};
    });
  };
  expect_malformed(reply(true, true), {}, "a result and an error");
  expect_malformed(reply(false, false), {}, "no result");
  EXPECT_NO_THROW(decode(reply(true, false), {}, Limits()));
  EXPECT_NO_THROW(decode(reply(false, true), {}, Limits()));
}

TEST(Malformed, VerdictsThatContradictThemselves) {
  auto verdict = [](bool commit, bool with_error) {
    return raw([=](FlatBufferBuilder& builder) {
      flatbuffers::Offset<protocol::Error> error;
      if (with_error) error = protocol::CreateError(builder, 10, builder.CreateString("x"));
      protocol::Id id(1, 2);
      return Raw{protocol::Body::Verdict, protocol::CreateVerdict(builder, &id, &id, commit, error).Union()};
    });
  };
  expect_malformed(verdict(true, true), {}, "commit with an error");
  expect_malformed(verdict(false, false), {}, "abort without a reason");
}

TEST(Malformed, ChunksThatDoNotFit) {
  const Frame piece = frame_of("12345");
  expect_malformed(encoded_header(Chunk{1, 0, 5, false, piece}), {}, "a chunk without bytes");
  expect_malformed(encoded_header(Chunk{0, 0, 5, false, piece}), {piece}, "a chunk of transfer 0");
  expect_malformed(encoded_header(Chunk{1, 1, 5, false, piece}), {piece}, "5 bytes at 1 of a transfer of 5");
  expect_malformed(encoded_header(Chunk{1, UINT64_MAX, 5, false, piece}), {piece}, "of a transfer of 5");
  expect_malformed(encoded_header(Chunk{1, 0, 5, true, {}}), {piece}, "belongs to nothing");
  expect_malformed(encoded_header(Chunk{1, 0, 5, false, piece}), {Frame()}, "a chunk without bytes");
}

// ---- fields of 0.2 that named places in the sender's memory: HELLO 10 and 11, WELCOME 2, CHUNK 4 and 5 ----

constexpr flatbuffers::voffset_t place_of_field(int id) { return static_cast<flatbuffers::voffset_t>(4 + 2 * id); }

TEST(UnusedFields, OfGreetingsAreIgnored) {
  const Frame hello = raw([](FlatBufferBuilder& builder) {
    auto job = builder.CreateString("job"), name = builder.CreateString("a"), endpoint = builder.CreateString("x://");
    protocol::HelloBuilder table(builder);
    table.add_job(job);
    table.add_name(name);
    table.add_endpoint(endpoint);
    table.add_incarnation(31);
    builder.AddElement<int64_t>(place_of_field(10), 4711, 0);
    builder.AddElement<uint64_t>(place_of_field(11), uint64_t{1} << 40, 0);
    return Raw{protocol::Body::Hello, table.Finish().Union()};
  });
  EXPECT_EQ(std::get<Hello>(decode(hello, {}, Limits()).body).incarnation, 31u);
  const Frame welcome = raw([](FlatBufferBuilder& builder) {
    protocol::WelcomeBuilder table(builder);
    table.add_incarnation(31);
    table.add_next(7);
    builder.AddElement<uint64_t>(place_of_field(2), 99, 0);
    return Raw{protocol::Body::Welcome, table.Finish().Union()};
  });
  EXPECT_EQ(std::get<Welcome>(decode(welcome, {}, Limits()).body).next, 7u);
}

// An address instead of bytes is a violation, and beside bytes it changes nothing.
TEST(UnusedFields, OfAChunkNeverStandForItsBytes) {
  const Frame header = raw([](FlatBufferBuilder& builder) {
    protocol::ChunkBuilder table(builder);
    table.add_transfer(1);
    table.add_total(5);
    builder.AddElement<uint64_t>(place_of_field(4), reinterpret_cast<uintptr_t>(&builder), 0);
    builder.AddElement<uint64_t>(place_of_field(5), 5, 0);
    return Raw{protocol::Body::Chunk, table.Finish().Union()};
  });
  expect_malformed(header, {}, "a chunk without bytes");
  const Message message = decode(header, {frame_of("12345")}, Limits());
  EXPECT_EQ(std::memcmp(std::get<Chunk>(message.body).piece.data(), "12345", 5), 0);
}

TEST(Malformed, TransfersOutOfOrder) {
  auto ping = [](FlatBufferBuilder& builder) {
    return Raw{protocol::Body::Ping, protocol::CreatePing(builder).Union()};
  };
  expect_malformed(raw(ping, "", {{1, 1}, {2, 1}}), {}, "transfers out of order");
  expect_malformed(raw(ping, "", {{0, 0}}), {}, "a transfer 0");
}

// The piece of such a chunk could be a frame of which not all has been copied.
TEST(Malformed, AChunkThatNamesATransfer) {
  auto chunk = [](FlatBufferBuilder& builder) {
    return Raw{protocol::Body::Chunk, protocol::CreateChunk(builder, 2, 0, 5).Union()};
  };
  expect_malformed(raw(chunk, "", {{1, 0}}), {frame_of("12345")}, "a chunk that names a transfer");
}

// ---- what a later version may send ----

TEST(Compatibility, AnUnknownStatusIsTheOtherSides) {
  Error later(static_cast<Status>(99), "new");
  Reply reply = std::get<Reply>(decode(encoded_header(Reply{{1, 2}, true, later, {}, {}}), {}, Limits()).body);
  EXPECT_EQ(reply.error.status(), Status::kRemote);
  EXPECT_EQ(reply.error.message(), "new");
}

TEST(Compatibility, AnUnknownReasonIsUnspecified) {
  Refuse later{static_cast<RefuseReason>(77), 1, "new"};
  Refuse refuse = std::get<Refuse>(decode(encoded_header(later), {}, Limits()).body);
  EXPECT_EQ(refuse.reason, RefuseReason::kUnspecified);
  EXPECT_EQ(refuse.text, "new");
}

}  // namespace
}  // namespace distag::wire
