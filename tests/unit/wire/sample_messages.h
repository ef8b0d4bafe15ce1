#pragma once

#include <string>
#include <vector>

#include "wire/codec.h"
#include "wire/message.h"

namespace distag::wire {

inline Tensor floats(const Dims& shape, float first = 0.5f) {
  Tensor tensor = Tensor::empty(Dtype::kFloat32, shape);
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.mutable_data_as<float>()[i] = first + static_cast<float>(i);
  return tensor;
}

inline Value bytes_of(size_t size) { return Value::bytes(Value::Bytes(size, std::byte{7})); }

inline constexpr const char* kTraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

// Values of every kind, with small and large payload.
inline Values all_values() {
  Tensor flags = Tensor::empty(Dtype::kBool, {3});
  for (int i = 0; i < 3; ++i) flags.mutable_data_as<uint8_t>()[i] = i == 1;
  Value numbers = Value::list({Value(int64_t{1}), Value(int64_t{-2}), Value(int64_t{3})});
  Value mixed = Value::list({Value(), Value(true), Value(floats({0, 3}))});
  Value map = Value::map({{"b", Value(2.5)}, {"a", mixed}, {"", Value::text("x")}});
  Value reference(std::shared_ptr<ExternalValue>(std::make_shared<Reference>(Id{71, 72}, 73, 4, Id{74, 75})));
  Value of_receiver(std::shared_ptr<ExternalValue>(std::make_shared<Reference>(Id{71, 72}, 73, 4, Id{})));
  return {Value(),
          Value(true),
          Value(int64_t{-5}),
          Value(1.25),
          Value::text("h\xC3\xA9"),
          Value::text(std::string(9000, 't')),
          bytes_of(3),
          bytes_of(70000),
          Value(floats({2, 3})),
          Value(floats({300, 7})),
          Value(Tensor::scalar(Dtype::kFloat64, 0.125)),
          Value(Tensor::scalar(Dtype::kInt64, -9)),
          Value(flags),
          numbers,
          Value::list({}),
          map,
          reference,
          Value::list({of_receiver})};
}

// A message of each body, with no field at its default.
inline std::vector<Body> all_bodies() {
  const Id context{11, 12}, pass{13, 14}, pair{15, 16}, request{17, 18};
  const Error error = Error(Status::kGraphFreed, "why").set_origin_rank(3).set_may_have_run(true);
  const AutogradMetadata metadata{context, 2, pair, {}, {21, 22}};
  AutogradMetadata tracked = metadata;
  tracked.tracked = {true, false, true, false, true, false};
  tracked.lineage = {{pair, {17, 18}, 1, 2}, {pair, {}, 2, 1}, {{17, 18}, {}, 0, 0}};
  const Member member{1, "b", "tcp://127.0.0.1:5", 31, 2, 77};
  Frame piece = Frame::copy_of("12345", 5);
  return {Hello{"job", 1, 6, "a", 1, 31, 2, "ipc:///x", 32, 99, {std::byte{7}, std::byte{8}}},
          Welcome{31, 7, {std::byte{7}}, "lack"},
          Refuse{RefuseReason::kFenced, 31, "no"},
          Ack{},
          Ping{},
          Leave{},
          Chunk{1, 10, 15, false, piece},
          Call{{1, 2}, "f", all_values(), 5, tracked, "label", {81, 82}, {}, 83, 0, TraceParent::parse(kTraceParent)},
          Reply{{1, 2}, false, {}, Value(floats({2})), {context, 2, pair, {true}, {21}}, {}, 84},
          Reply{{1, 2}, true, error, {}, {context, 2, {}, {}, {21}}},
          Cancel{{1, 2}},
          Join{"job", 1, 4, member, {std::byte{9}}, 0, "node7", 4711},
          Roster{true, error, {member, member}, {2, 3}, 40, 42, {std::byte{9}}},
          ShutdownPoll{9, {41}},
          ShutdownAnswer{9, true, true, {{41, 5, 6}, {42, 7, 8}}, {43}},
          ShutdownVerdict{9},
          Joined{context, pass},
          Release{{context, pass}},
          Discover{context, pass, request, true, {{16, 15, {true, false}}, {18, 17, {}}}, {{{19, 20}, 21, 22}}, true},
          Discovered{context, pass, request, true, error, {51, 52}},
          Start{context, pass, true, true},
          Grad{context,
               pass,
               pair,
               true,
               true,
               {true, false, true},
               {Value(floats({2})), Value()},
               true,
               true,
               5,
               6,
               true,
               {context, 2, {25, 26}, {true}, {}, {{{25, 26}, {27, 28}, 0, 1}}}},
          Done{context, pass, true, error, 3, 4, {53}, true, true},
          Verdict{context, pass, false, error},
          Probe{context, pass, 5},
          ProbeAnswer{context, pass, 5, true, 3, 4, {"call \"f\" on \"b\"", "other"}, {54, 55}},
          Holders{context, request, true, {61, 62}},
          Fork{{71, 72}, {74, 75}},
          Forked{{74, 75}, 76},
          Drop{{74, 75}},
          Seek{{71, 72}},
          Sought{{71, 72}},
          Part{{91, 92}, "line", 7, 1, 8, {Value(floats({2})), Value(floats({300, 7}))}},
          Calls{{91, 92}, "line", {{6, 5, "all_reduce(float32[2])"}, {7, 8, "all_gather(float32[2])"}}},
          MeshEnd{{91, 92}, error, true},
          Where{{91, 92}, "line", {7, 8}, 93},
          Here{{91, 92}, "line", true, true, 7, "all_reduce(float32[2])", 58, {1, 3}, {9, 10}},
          Go{context, pass},
          Entered{context, pass, {{19, 20}, 21, 22}},
          Credit{61},
          WantCredit{62},
          Expect{context, pass, true, {{16, 15, {true, false}}, {18, 17, {true}}}, 63, true}};
}

}  // namespace distag::wire
