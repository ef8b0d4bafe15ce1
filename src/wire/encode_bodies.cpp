#include <utility>
#include <vector>

#include "base/error.h"
#include "message_generated.h"
#include "tensor/utf8.h"
#include "wire/encoder.h"
#include "wire/packed.h"

namespace distag::wire {
namespace {

using flatbuffers::Offset;
using flatbuffers::String;
using flatbuffers::Vector;

protocol::Id wire_id(const Id& id) { return protocol::Id(id.maker, id.counter); }
protocol::EntryName wire_entry(const EntryName& entry) {
  return protocol::EntryName(wire_id(entry.mesh), entry.call, entry.line);
}

// All messages of a pass begin with these ids.
struct Ids {
  template <typename T>
  explicit Ids(const T& message) : context(wire_id(message.context)), pass(wire_id(message.pass)) {}
  protocol::Id context;
  protocol::Id pass;
};

template <typename T>
EncodedUnion as_body(Offset<T> table) {
  return {static_cast<uint8_t>(protocol::BodyTraits<T>::enum_value), table.o};
}

// Writes what several bodies have.
struct Parts {
  flatbuffers::FlatBufferBuilder& builder;
  PayloadWriter& payload;

  Offset<String> text(const std::string& text, size_t limit, const char* what) {
    if (text.size() > limit) {
      fail(Status::kInvalidArgument, "the {} has {} bytes, more than {}", what, text.size(), limit);
    }
    if (!is_valid_utf8(text) || text.find('\0') != std::string::npos) {
      fail(Status::kInvalidArgument, "the {} is not valid UTF-8, or holds a zero byte", what);
    }
    return builder.CreateString(text);
  }
  Offset<String> name(const std::string& given, const char* what) {
    if (given.empty()) fail(Status::kInvalidArgument, "the {} is empty", what);
    return text(given, kMaxNameBytes, what);
  }
  Offset<String> mended(const std::string& words, size_t limit) {
    if (words.size() <= limit && is_valid_utf8(words) && words.find('\0') == std::string::npos) {
      return builder.CreateString(words);
    }
    return builder.CreateString(mend_text(words, limit));
  }

  // Absent unless `failed`.
  Offset<protocol::Error> error(bool failed, const Error& error) {
    if (!failed) return 0;
    auto words = mended(error.message(), kMaxErrorBytes);
    Status status = error.status() == Status::kOk ? Status::kInternal : error.status();
    return protocol::CreateError(builder, static_cast<int32_t>(status), words, error.origin_rank(),
                                 error.may_have_run());
  }

  Offset<protocol::Recording> metadata(const AutogradMetadata& metadata) {
    if (!metadata.context) return 0;
    auto tracked = metadata.pair ? bits(metadata.tracked) : 0;
    auto joined = numbers(metadata.joined);
    protocol::Id context = wire_id(metadata.context);
    protocol::Id pair = wire_id(metadata.pair);
    auto told = lineage(metadata.lineage);
    return protocol::CreateRecording(builder, &context, metadata.creator_rank, metadata.pair ? &pair : nullptr, tracked,
                                     joined, told);
  }

  Offset<Vector<const protocol::Link*>> lineage(const std::vector<AutogradMetadata::Link>& links) {
    if (links.empty()) return 0;
    protocol::Link* structs = nullptr;
    auto told = builder.CreateUninitializedVectorOfStructs(links.size(), &structs);
    for (const AutogradMetadata::Link& link : links) {
      *structs++ = protocol::Link(wire_id(link.pair), wire_id(link.on), link.slot, link.on_slot);
    }
    return told;
  }

  Offset<Vector<Offset<protocol::PairBits>>> pairs(const std::vector<PairBits>& pairs) {
    std::vector<Offset<protocol::PairBits>> offsets;
    for (const PairBits& pair : pairs) {
      auto reached = bits(pair.bits);
      protocol::Id id(pair.pair_maker, pair.pair_counter);
      offsets.push_back(protocol::CreatePairBits(builder, &id, reached));
    }
    return builder.CreateVector(offsets);
  }

  Offset<protocol::Member> member(const Member& member) {
    // A joiner may not have a name yet: that depends on its rank.
    auto worker = text(member.name, kMaxNameBytes, "name of a worker");
    auto endpoint = text(member.endpoint, kMaxEndpointBytes, "endpoint");
    return protocol::CreateMember(builder, member.rank, worker, endpoint, member.incarnation, member.generation,
                                  member.max_message_bytes);
  }

  template <typename T>
  Offset<Vector<T>> numbers(const std::vector<T>& numbers) {
    if (numbers.empty()) return 0;
    return builder.CreateVector(numbers);
  }

  Offset<Vector<uint8_t>> proof(const Proof& proof) {
    if (proof.empty()) return 0;
    return builder.CreateVector(reinterpret_cast<const uint8_t*>(proof.data()), proof.size());
  }

  Offset<Vector<uint8_t>> bits(const std::vector<bool>& bits) {
    if (bits.empty()) return 0;
    return builder.CreateVector(bits);
  }
};

// ---- bodies: objects that a table refers to are written before the table, as FlatBuffers requires ----

EncodedUnion body_of(Parts& to, const Hello& hello) {
  auto job = to.name(hello.job, "job");
  auto worker = to.name(hello.name, "name of a worker");
  auto endpoint = to.text(hello.endpoint, kMaxEndpointBytes, "endpoint");
  auto shown = to.proof(hello.proof);
  return as_body(protocol::CreateHello(to.builder, job, hello.protocol, hello.features, worker, hello.rank,
                                       hello.incarnation, hello.generation, endpoint, hello.wanted,
                                       hello.max_message_bytes, shown));
}
EncodedUnion body_of(Parts& to, const Welcome& welcome) {
  auto shown = to.proof(welcome.proof);
  Offset<String> lack;
  if (!welcome.lack.empty()) lack = to.mended(welcome.lack, kMaxErrorBytes);
  return as_body(protocol::CreateWelcome(to.builder, welcome.incarnation, welcome.next, shown, lack));
}
EncodedUnion body_of(Parts& to, const Refuse& refuse) {
  auto words = to.mended(refuse.text, kMaxErrorBytes);
  return as_body(protocol::CreateRefuse(to.builder, static_cast<protocol::RefuseReason>(refuse.reason),
                                        refuse.incarnation, words));
}
EncodedUnion body_of(Parts& to, const Ack&) { return as_body(protocol::CreateAck(to.builder)); }
EncodedUnion body_of(Parts& to, const Ping&) { return as_body(protocol::CreatePing(to.builder)); }
EncodedUnion body_of(Parts& to, const Leave&) { return as_body(protocol::CreateLeave(to.builder)); }
EncodedUnion body_of(Parts& to, const Chunk& chunk) {
  return as_body(protocol::CreateChunk(to.builder, chunk.transfer, chunk.offset, chunk.total, chunk.abandoned));
}

EncodedUnion body_of(Parts& to, const Call& call) {
  auto function = to.name(call.function, "name of a function");
  EncodedValues args =
      call.packed != nullptr ? call.packed->put_values(to.builder) : encode_values(to.builder, to.payload, call.args);
  auto noted = to.metadata(call.metadata);
  Offset<String> label;
  if (!call.label.empty()) label = to.mended(call.label, kMaxNameBytes);
  Offset<String> trace_parent;
  if (call.trace_parent != nullptr) trace_parent = to.builder.CreateString(call.trace_parent->text());
  protocol::Id id = wire_id(call.call);
  protocol::Id keep = wire_id(call.keep);
  return as_body(protocol::CreateCall(to.builder, &id, function, args.types, args.values, call.time_left, noted, label,
                                      call.keep ? &keep : nullptr, call.cost, trace_parent));
}
EncodedUnion body_of(Parts& to, const Reply& reply) {
  protocol::Id id = wire_id(reply.call);
  if (reply.failed) {
    auto why = to.error(true, reply.error);
    auto noted = to.metadata(reply.metadata);
    return as_body(protocol::CreateReply(to.builder, &id, why, protocol::Value::NONE, 0, noted, reply.taken));
  }
  EncodedUnion result = reply.packed != nullptr ? reply.packed->put_value(to.builder)
                                                : encode_value(to.builder, to.payload, reply.result);
  auto noted = to.metadata(reply.metadata);
  return as_body(protocol::CreateReply(to.builder, &id, 0, static_cast<protocol::Value>(result.type), result.offset,
                                       noted, reply.taken));
}
EncodedUnion body_of(Parts& to, const Credit& credit) {
  return as_body(protocol::CreateCredit(to.builder, credit.taken));
}
EncodedUnion body_of(Parts& to, const WantCredit& wanted) {
  return as_body(protocol::CreateWantCredit(to.builder, wanted.taken));
}
EncodedUnion body_of(Parts& to, const Cancel& cancel) {
  protocol::Id id = wire_id(cancel.call);
  return as_body(protocol::CreateCancel(to.builder, &id));
}

EncodedUnion body_of(Parts& to, const Join& join) {
  auto job = to.name(join.job, "job");
  auto who = to.member(join.member);
  auto shown = to.proof(join.proof);
  Offset<String> host;
  if (!join.host.empty()) host = to.mended(join.host, kMaxHostBytes);
  return as_body(protocol::CreateJoin(to.builder, job, join.protocol, join.world_size, who, shown, join.asked, host,
                                      join.process));
}
EncodedUnion body_of(Parts& to, const Roster& roster) {
  auto why = to.error(roster.refused, roster.error);
  std::vector<Offset<protocol::Member>> members;
  for (const Member& each : roster.members) members.push_back(to.member(each));
  auto all = to.builder.CreateVector(members);
  auto missing = to.numbers(roster.missing);
  auto shown = to.proof(roster.proof);
  return as_body(
      protocol::CreateRoster(to.builder, why, all, missing, roster.offset, roster.total, shown, roster.asked));
}
EncodedUnion body_of(Parts& to, const ShutdownPoll& ask) {
  auto missing = to.numbers(ask.missing);
  return as_body(protocol::CreateShutdownPoll(to.builder, ask.round, missing));
}
EncodedUnion body_of(Parts& to, const ShutdownAnswer& answer) {
  std::vector<protocol::PeerCount> counts;
  for (const PeerCount& count : answer.counts) {
    counts.emplace_back(count.peer, count.requests_sent, count.requests_received);
  }
  auto all = to.builder.CreateVectorOfStructs(counts);
  auto lost = to.numbers(answer.lost);
  return as_body(protocol::CreateShutdownAnswer(to.builder, answer.round, answer.stopping, answer.idle, all, lost));
}
EncodedUnion body_of(Parts& to, const ShutdownVerdict& verdict) {
  return as_body(protocol::CreateShutdownVerdict(to.builder, verdict.round));
}

EncodedUnion body_of(Parts& to, const Joined& joined) {
  protocol::Id context = wire_id(joined.context);
  protocol::Id pass = wire_id(joined.pass);
  return as_body(protocol::CreateJoined(to.builder, &context, joined.pass ? &pass : nullptr));
}
EncodedUnion body_of(Parts& to, const Release& release) {
  std::vector<protocol::Id> contexts;
  for (const Id& id : release.contexts) contexts.push_back(wire_id(id));
  auto all = to.builder.CreateVectorOfStructs(contexts);
  return as_body(protocol::CreateRelease(to.builder, all));
}
EncodedUnion body_of(Parts& to, const Discover& discover) {
  auto all = to.pairs(discover.pairs);
  std::vector<protocol::EntryName> reached;
  for (const EntryName& entry : discover.entries) reached.push_back(wire_entry(entry));
  auto entries = reached.empty() ? 0 : to.builder.CreateVectorOfStructs(reached);
  Ids ids(discover);
  protocol::Id request = wire_id(discover.request);
  return as_body(protocol::CreateDiscover(to.builder, &ids.context, &ids.pass, &request, discover.retain_graph, all,
                                          entries, discover.creates_graph));
}
EncodedUnion body_of(Parts& to, const Discovered& discovered) {
  auto why = to.error(discovered.failed, discovered.error);
  auto participants = to.numbers(discovered.participants);
  Ids ids(discovered);
  protocol::Id request = wire_id(discovered.request);
  return as_body(protocol::CreateDiscovered(to.builder, &ids.context, &ids.pass, &request, why, participants,
                                            discovered.has_entries));
}
EncodedUnion body_of(Parts& to, const Go& go) {
  Ids ids(go);
  return as_body(protocol::CreateGo(to.builder, &ids.context, &ids.pass));
}
EncodedUnion body_of(Parts& to, const Entered& entered) {
  Ids ids(entered);
  const protocol::EntryName entry = wire_entry(entered.entry);
  return as_body(protocol::CreateEntered(to.builder, &ids.context, &ids.pass, &entry));
}
EncodedUnion body_of(Parts& to, const Start& start) {
  Ids ids(start);
  return as_body(protocol::CreateStart(to.builder, &ids.context, &ids.pass, start.retain_graph, start.creates_graph));
}
EncodedUnion body_of(Parts& to, const Expect& expect) {
  auto sends = to.pairs(expect.sends);
  Ids ids(expect);
  return as_body(protocol::CreateExpect(to.builder, &ids.context, &ids.pass, expect.retain_graph, sends, expect.check,
                                        expect.creates_graph));
}
EncodedUnion body_of(Parts& to, const Grad& grad) {
  EncodedValues gradients = encode_values(to.builder, to.payload, grad.gradients);
  auto live = to.bits(grad.live);
  auto recording = to.metadata(grad.recording);
  Ids ids(grad);
  protocol::Id pair = wire_id(grad.pair);
  protocol::Tally tally(grad.grads_sent, grad.grads_received);
  return as_body(protocol::CreateGrad(to.builder, &ids.context, &ids.pass, &pair, grad.retain_graph, grad.fast, live,
                                      gradients.types, gradients.values, grad.planned, grad.done ? &tally : nullptr,
                                      grad.creates_graph, recording));
}
EncodedUnion body_of(Parts& to, const Done& done) {
  auto why = to.error(done.failed, done.error);
  auto grads_to = to.numbers(done.grads_to);
  Ids ids(done);
  return as_body(protocol::CreateDone(to.builder, &ids.context, &ids.pass, why, done.grads_sent, done.grads_received,
                                      grads_to, done.replan, done.creates_graph));
}
EncodedUnion body_of(Parts& to, const Verdict& verdict) {
  auto why = to.error(!verdict.commit, verdict.error);
  Ids ids(verdict);
  return as_body(protocol::CreateVerdict(to.builder, &ids.context, &ids.pass, verdict.commit, why));
}
EncodedUnion body_of(Parts& to, const Probe& probe) {
  Ids ids(probe);
  return as_body(protocol::CreateProbe(to.builder, &ids.context, &ids.pass, probe.round));
}
EncodedUnion body_of(Parts& to, const ProbeAnswer& answer) {
  std::vector<Offset<String>> unreached;
  for (const std::string& call : answer.unreached) unreached.push_back(to.mended(call, kMaxNoteBytes));
  auto all = to.builder.CreateVector(unreached);
  auto grads_to = to.numbers(answer.grads_to);
  Ids ids(answer);
  return as_body(protocol::CreateProbeAnswer(to.builder, &ids.context, &ids.pass, answer.round, answer.idle,
                                             answer.grads_sent, answer.grads_received, all, grads_to));
}
EncodedUnion body_of(Parts& to, const Holders& holders) {
  auto all = to.numbers(holders.holders);
  protocol::Id context = wire_id(holders.context);
  protocol::Id request = wire_id(holders.request);
  return as_body(protocol::CreateHolders(to.builder, &context, &request, holders.answer, all));
}

EncodedUnion body_of(Parts& to, const Fork& fork) {
  protocol::Id value = wire_id(fork.value);
  protocol::Id id = wire_id(fork.fork);
  return as_body(protocol::CreateFork(to.builder, &value, &id));
}
EncodedUnion body_of(Parts& to, const Forked& forked) {
  protocol::Id id = wire_id(forked.fork);
  return as_body(protocol::CreateForked(to.builder, &id, forked.holder));
}
EncodedUnion body_of(Parts& to, const Drop& drop) {
  protocol::Id id = wire_id(drop.fork);
  return as_body(protocol::CreateDrop(to.builder, &id));
}
EncodedUnion body_of(Parts& to, const Seek& seek) {
  protocol::Id value = wire_id(seek.value);
  return as_body(protocol::CreateSeek(to.builder, &value));
}
EncodedUnion body_of(Parts& to, const Sought& sought) {
  protocol::Id value = wire_id(sought.value);
  return as_body(protocol::CreateSought(to.builder, &value));
}

EncodedUnion body_of(Parts& to, const Part& part) {
  EncodedValues pieces = encode_values(to.builder, to.payload, part.pieces);
  auto line = to.text(part.line, kMaxNameBytes, "name of a line");
  protocol::Id mesh = wire_id(part.mesh);
  return as_body(
      protocol::CreatePart(to.builder, &mesh, line, part.number, part.part, part.hash, pieces.types, pieces.values));
}
EncodedUnion body_of(Parts& to, const Calls& calls) {
  std::vector<protocol::CallHash> hashes;
  std::vector<Offset<String>> texts;
  for (const Calls::Made& made : calls.calls) {
    hashes.emplace_back(made.number, made.hash);
    texts.push_back(to.mended(made.text, kMaxNoteBytes));
  }
  auto all_hashes = to.builder.CreateVectorOfStructs(hashes);
  auto all_texts = to.builder.CreateVector(texts);
  auto line = to.text(calls.line, kMaxNameBytes, "name of a line");
  protocol::Id mesh = wire_id(calls.mesh);
  return as_body(protocol::CreateCalls(to.builder, &mesh, line, all_hashes, all_texts));
}
EncodedUnion body_of(Parts& to, const MeshEnd& end) {
  auto why = to.error(true, end.error);
  protocol::Id mesh = wire_id(end.mesh);
  return as_body(protocol::CreateMeshEnd(to.builder, &mesh, why, end.left));
}
EncodedUnion body_of(Parts& to, const Where& where) {
  auto line = to.text(where.line, kMaxNameBytes, "name of a line");
  protocol::Id mesh = wire_id(where.mesh);
  const protocol::CallHash last(where.last.number, where.last.hash);
  return as_body(
      protocol::CreateWhere(to.builder, &mesh, line, where.last.number == 0 ? nullptr : &last, where.proposed));
}
EncodedUnion body_of(Parts& to, const Here& here) {
  auto line = to.text(here.line, kMaxNameBytes, "name of a line");
  auto call = to.mended(here.text, kMaxNoteBytes);
  auto ranks = to.numbers(here.waits_for);
  protocol::Id mesh = wire_id(here.mesh);
  const protocol::CallHash last(here.last.number, here.last.hash);
  return as_body(protocol::CreateHere(to.builder, &mesh, line, here.is_open, here.in_call, here.number, call, here.age,
                                      ranks, here.last.number == 0 ? nullptr : &last));
}

}  // namespace

EncodedUnion encode_body(flatbuffers::FlatBufferBuilder& builder, PayloadWriter& payload, const Body& body) {
  Parts to{builder, payload};
  return std::visit([&to](const auto& one) { return body_of(to, one); }, body);
}

}  // namespace distag::wire
