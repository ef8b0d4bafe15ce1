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

// Writes one body. Objects that a table refers to are written before the table, as FlatBuffers requires.
class BodyEncoder {
 public:
  BodyEncoder(flatbuffers::FlatBufferBuilder& builder, PayloadWriter& payload) : builder_(builder), payload_(payload) {}

  EncodedUnion operator()(const Hello& hello) {
    auto job = name(hello.job, "job");
    auto worker = name(hello.name, "name of a worker");
    auto endpoint = text(hello.endpoint, kMaxEndpointBytes, "endpoint");
    auto shown = proof(hello.proof);
    return make(protocol::Body::Hello, protocol::CreateHello(builder_, job, hello.protocol, hello.features, worker,
                                                             hello.rank, hello.incarnation, hello.generation, endpoint,
                                                             hello.wanted, hello.max_message_bytes, shown));
  }
  EncodedUnion operator()(const Welcome& welcome) {
    auto shown = proof(welcome.proof);
    Offset<String> lack;
    if (!welcome.lack.empty()) lack = mended(welcome.lack, kMaxErrorBytes);
    return make(protocol::Body::Welcome,
                protocol::CreateWelcome(builder_, welcome.incarnation, welcome.next, shown, lack));
  }
  EncodedUnion operator()(const Refuse& refuse) {
    auto words = mended(refuse.text, kMaxErrorBytes);
    return make(protocol::Body::Refuse,
                protocol::CreateRefuse(builder_, static_cast<protocol::RefuseReason>(refuse.reason), refuse.incarnation,
                                       words));
  }
  EncodedUnion operator()(const Ack&) { return make(protocol::Body::Ack, protocol::CreateAck(builder_)); }
  EncodedUnion operator()(const Ping&) { return make(protocol::Body::Ping, protocol::CreatePing(builder_)); }
  EncodedUnion operator()(const Leave&) { return make(protocol::Body::Leave, protocol::CreateLeave(builder_)); }
  EncodedUnion operator()(const Chunk& chunk) {
    return make(protocol::Body::Chunk,
                protocol::CreateChunk(builder_, chunk.transfer, chunk.offset, chunk.total, chunk.abandoned));
  }

  EncodedUnion operator()(const Call& call) {
    auto function = name(call.function, "name of a function");
    EncodedValues args =
        call.packed != nullptr ? call.packed->put_values(builder_) : encode_values(builder_, payload_, call.args);
    auto noted = metadata(call.metadata);
    Offset<String> label;
    if (!call.label.empty()) label = mended(call.label, kMaxNameBytes);
    Offset<String> trace_parent;
    if (call.trace_parent != nullptr) trace_parent = builder_.CreateString(call.trace_parent->text());
    protocol::Id id = wire_id(call.call);
    protocol::Id keep = wire_id(call.keep);
    return make(protocol::Body::Call,
                protocol::CreateCall(builder_, &id, function, args.types, args.values, call.time_left, noted, label,
                                     call.keep ? &keep : nullptr, call.cost, trace_parent));
  }
  EncodedUnion operator()(const Reply& reply) {
    protocol::Id id = wire_id(reply.call);
    if (reply.failed) {
      auto why = error(true, reply.error);
      auto noted = metadata(reply.metadata);
      return make(protocol::Body::Reply,
                  protocol::CreateReply(builder_, &id, why, protocol::Value::NONE, 0, noted, reply.taken));
    }
    EncodedUnion result =
        reply.packed != nullptr ? reply.packed->put_value(builder_) : encode_value(builder_, payload_, reply.result);
    auto noted = metadata(reply.metadata);
    return make(protocol::Body::Reply,
                protocol::CreateReply(builder_, &id, 0, static_cast<protocol::Value>(result.type), result.offset, noted,
                                      reply.taken));
  }
  EncodedUnion operator()(const Credit& credit) {
    return make(protocol::Body::Credit, protocol::CreateCredit(builder_, credit.taken));
  }
  EncodedUnion operator()(const WantCredit& wanted) {
    return make(protocol::Body::WantCredit, protocol::CreateWantCredit(builder_, wanted.taken));
  }
  EncodedUnion operator()(const Cancel& cancel) {
    protocol::Id id = wire_id(cancel.call);
    return make(protocol::Body::Cancel, protocol::CreateCancel(builder_, &id));
  }

  EncodedUnion operator()(const Join& join) {
    auto job = name(join.job, "job");
    auto who = member(join.member);
    auto shown = proof(join.proof);
    Offset<String> host;
    if (!join.host.empty()) host = mended(join.host, kMaxHostBytes);
    return make(protocol::Body::Join, protocol::CreateJoin(builder_, job, join.protocol, join.world_size, who, shown,
                                                           join.asked, host, join.process));
  }
  EncodedUnion operator()(const Roster& roster) {
    auto why = error(roster.refused, roster.error);
    std::vector<Offset<protocol::Member>> members;
    for (const Member& each : roster.members) members.push_back(member(each));
    auto all = builder_.CreateVector(members);
    auto missing = numbers(roster.missing);
    auto shown = proof(roster.proof);
    return make(protocol::Body::Roster,
                protocol::CreateRoster(builder_, why, all, missing, roster.offset, roster.total, shown, roster.asked));
  }
  EncodedUnion operator()(const ShutdownPoll& ask) {
    auto missing = numbers(ask.missing);
    return make(protocol::Body::ShutdownPoll, protocol::CreateShutdownPoll(builder_, ask.round, missing));
  }
  EncodedUnion operator()(const ShutdownAnswer& answer) {
    std::vector<protocol::PeerCount> counts;
    for (const PeerCount& count : answer.counts) {
      counts.emplace_back(count.peer, count.requests_sent, count.requests_received);
    }
    auto all = builder_.CreateVectorOfStructs(counts);
    auto lost = numbers(answer.lost);
    return make(protocol::Body::ShutdownAnswer,
                protocol::CreateShutdownAnswer(builder_, answer.round, answer.stopping, answer.idle, all, lost));
  }
  EncodedUnion operator()(const ShutdownVerdict& verdict) {
    return make(protocol::Body::ShutdownVerdict, protocol::CreateShutdownVerdict(builder_, verdict.round));
  }

  EncodedUnion operator()(const Joined& joined) {
    protocol::Id context = wire_id(joined.context);
    protocol::Id pass = wire_id(joined.pass);
    return make(protocol::Body::Joined, protocol::CreateJoined(builder_, &context, joined.pass ? &pass : nullptr));
  }
  EncodedUnion operator()(const Release& release) {
    std::vector<protocol::Id> contexts;
    for (const Id& id : release.contexts) contexts.push_back(wire_id(id));
    auto all = builder_.CreateVectorOfStructs(contexts);
    return make(protocol::Body::Release, protocol::CreateRelease(builder_, all));
  }
  EncodedUnion operator()(const Discover& discover) {
    auto all = pairs(discover.pairs);
    std::vector<protocol::EntryName> reached;
    for (const EntryName& entry : discover.entries) reached.push_back(wire_entry(entry));
    auto entries = reached.empty() ? 0 : builder_.CreateVectorOfStructs(reached);
    Ids ids(discover);
    protocol::Id request = wire_id(discover.request);
    return make(protocol::Body::Discover,
                protocol::CreateDiscover(builder_, &ids.context, &ids.pass, &request, discover.retain_graph, all,
                                         entries, discover.creates_graph));
  }
  EncodedUnion operator()(const Discovered& discovered) {
    auto why = error(discovered.failed, discovered.error);
    auto participants = numbers(discovered.participants);
    Ids ids(discovered);
    protocol::Id request = wire_id(discovered.request);
    return make(protocol::Body::Discovered, protocol::CreateDiscovered(builder_, &ids.context, &ids.pass, &request, why,
                                                                       participants, discovered.has_entries));
  }
  EncodedUnion operator()(const Go& go) {
    Ids ids(go);
    return make(protocol::Body::Go, protocol::CreateGo(builder_, &ids.context, &ids.pass));
  }
  EncodedUnion operator()(const Entered& entered) {
    Ids ids(entered);
    const protocol::EntryName entry = wire_entry(entered.entry);
    return make(protocol::Body::Entered, protocol::CreateEntered(builder_, &ids.context, &ids.pass, &entry));
  }
  EncodedUnion operator()(const Start& start) {
    Ids ids(start);
    return make(protocol::Body::Start,
                protocol::CreateStart(builder_, &ids.context, &ids.pass, start.retain_graph, start.creates_graph));
  }
  EncodedUnion operator()(const Expect& expect) {
    auto sends = pairs(expect.sends);
    Ids ids(expect);
    return make(protocol::Body::Expect, protocol::CreateExpect(builder_, &ids.context, &ids.pass, expect.retain_graph,
                                                               sends, expect.check, expect.creates_graph));
  }
  EncodedUnion operator()(const Grad& grad) {
    EncodedValues gradients = encode_values(builder_, payload_, grad.gradients);
    auto live = bits(grad.live);
    auto recording = metadata(grad.recording);
    Ids ids(grad);
    protocol::Id pair = wire_id(grad.pair);
    protocol::Tally tally(grad.grads_sent, grad.grads_received);
    return make(protocol::Body::Grad,
                protocol::CreateGrad(builder_, &ids.context, &ids.pass, &pair, grad.retain_graph, grad.fast, live,
                                     gradients.types, gradients.values, grad.planned, grad.done ? &tally : nullptr,
                                     grad.creates_graph, recording));
  }
  EncodedUnion operator()(const Done& done) {
    auto why = error(done.failed, done.error);
    auto to = numbers(done.grads_to);
    Ids ids(done);
    return make(protocol::Body::Done, protocol::CreateDone(builder_, &ids.context, &ids.pass, why, done.grads_sent,
                                                           done.grads_received, to, done.replan, done.creates_graph));
  }
  EncodedUnion operator()(const Verdict& verdict) {
    auto why = error(!verdict.commit, verdict.error);
    Ids ids(verdict);
    return make(protocol::Body::Verdict,
                protocol::CreateVerdict(builder_, &ids.context, &ids.pass, verdict.commit, why));
  }
  EncodedUnion operator()(const Probe& probe) {
    Ids ids(probe);
    return make(protocol::Body::Probe, protocol::CreateProbe(builder_, &ids.context, &ids.pass, probe.round));
  }
  EncodedUnion operator()(const ProbeAnswer& answer) {
    std::vector<Offset<String>> unreached;
    for (const std::string& call : answer.unreached) unreached.push_back(mended(call, kMaxNoteBytes));
    auto all = builder_.CreateVector(unreached);
    auto to = numbers(answer.grads_to);
    Ids ids(answer);
    return make(protocol::Body::ProbeAnswer,
                protocol::CreateProbeAnswer(builder_, &ids.context, &ids.pass, answer.round, answer.idle,
                                            answer.grads_sent, answer.grads_received, all, to));
  }
  EncodedUnion operator()(const Holders& holders) {
    auto all = numbers(holders.holders);
    protocol::Id context = wire_id(holders.context);
    protocol::Id request = wire_id(holders.request);
    return make(protocol::Body::Holders, protocol::CreateHolders(builder_, &context, &request, holders.answer, all));
  }

  EncodedUnion operator()(const Fork& fork) {
    protocol::Id value = wire_id(fork.value);
    protocol::Id id = wire_id(fork.fork);
    return make(protocol::Body::Fork, protocol::CreateFork(builder_, &value, &id));
  }
  EncodedUnion operator()(const Forked& forked) {
    protocol::Id id = wire_id(forked.fork);
    return make(protocol::Body::Forked, protocol::CreateForked(builder_, &id, forked.holder));
  }
  EncodedUnion operator()(const Drop& drop) {
    protocol::Id id = wire_id(drop.fork);
    return make(protocol::Body::Drop, protocol::CreateDrop(builder_, &id));
  }
  EncodedUnion operator()(const Seek& seek) {
    protocol::Id value = wire_id(seek.value);
    return make(protocol::Body::Seek, protocol::CreateSeek(builder_, &value));
  }
  EncodedUnion operator()(const Sought& sought) {
    protocol::Id value = wire_id(sought.value);
    return make(protocol::Body::Sought, protocol::CreateSought(builder_, &value));
  }

  EncodedUnion operator()(const Part& part) {
    EncodedValues pieces = encode_values(builder_, payload_, part.pieces);
    auto line = text(part.line, kMaxNameBytes, "name of a line");
    protocol::Id mesh = wire_id(part.mesh);
    return make(protocol::Body::Part, protocol::CreatePart(builder_, &mesh, line, part.number, part.part, part.hash,
                                                           pieces.types, pieces.values));
  }
  EncodedUnion operator()(const Calls& calls) {
    std::vector<protocol::CallHash> hashes;
    std::vector<Offset<String>> texts;
    for (const Calls::Made& made : calls.calls) {
      hashes.emplace_back(made.number, made.hash);
      texts.push_back(mended(made.text, kMaxNoteBytes));
    }
    auto all_hashes = builder_.CreateVectorOfStructs(hashes);
    auto all_texts = builder_.CreateVector(texts);
    auto line = text(calls.line, kMaxNameBytes, "name of a line");
    protocol::Id mesh = wire_id(calls.mesh);
    return make(protocol::Body::Calls, protocol::CreateCalls(builder_, &mesh, line, all_hashes, all_texts));
  }
  EncodedUnion operator()(const MeshEnd& end) {
    auto why = error(true, end.error);
    protocol::Id mesh = wire_id(end.mesh);
    return make(protocol::Body::MeshEnd, protocol::CreateMeshEnd(builder_, &mesh, why, end.left));
  }
  EncodedUnion operator()(const Where& where) {
    auto line = text(where.line, kMaxNameBytes, "name of a line");
    protocol::Id mesh = wire_id(where.mesh);
    const protocol::CallHash last(where.last.number, where.last.hash);
    return make(protocol::Body::Where,
                protocol::CreateWhere(builder_, &mesh, line, where.last.number == 0 ? nullptr : &last));
  }
  EncodedUnion operator()(const Here& here) {
    auto line = text(here.line, kMaxNameBytes, "name of a line");
    auto call = mended(here.text, kMaxNoteBytes);
    auto ranks = numbers(here.waits_for);
    protocol::Id mesh = wire_id(here.mesh);
    const protocol::CallHash last(here.last.number, here.last.hash);
    return make(protocol::Body::Here,
                protocol::CreateHere(builder_, &mesh, line, here.is_open, here.in_call, here.number, call, here.age,
                                     ranks, here.last.number == 0 ? nullptr : &last));
  }

 private:
  static protocol::Id wire_id(const Id& id) { return protocol::Id(id.maker, id.counter); }
  static protocol::EntryName wire_entry(const EntryName& entry) {
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
  static EncodedUnion make(protocol::Body type, Offset<T> table) {
    return {static_cast<uint8_t>(type), table.o};
  }

  Offset<String> text(const std::string& text, size_t limit, const char* what) {
    if (text.size() > limit) {
      fail(Status::kInvalidArgument, "the {} has {} bytes, more than {}", what, text.size(), limit);
    }
    if (!is_valid_utf8(text) || text.find('\0') != std::string::npos) {
      fail(Status::kInvalidArgument, "the {} is not valid UTF-8, or holds a zero byte", what);
    }
    return builder_.CreateString(text);
  }
  Offset<String> name(const std::string& given, const char* what) {
    if (given.empty()) fail(Status::kInvalidArgument, "the {} is empty", what);
    return text(given, kMaxNameBytes, what);
  }
  Offset<String> mended(const std::string& words, size_t limit) {
    if (words.size() <= limit && is_valid_utf8(words) && words.find('\0') == std::string::npos) {
      return builder_.CreateString(words);
    }
    return builder_.CreateString(mend_text(words, limit));
  }

  // Absent unless `failed`.
  Offset<protocol::Error> error(bool failed, const Error& error) {
    if (!failed) return 0;
    auto words = mended(error.message(), kMaxErrorBytes);
    Status status = error.status() == Status::kOk ? Status::kInternal : error.status();
    return protocol::CreateError(builder_, static_cast<int32_t>(status), words, error.origin_rank(),
                                 error.may_have_run());
  }

  Offset<protocol::Recording> metadata(const AutogradMetadata& metadata) {
    if (!metadata.context) return 0;
    auto tracked = metadata.pair ? bits(metadata.tracked) : 0;
    auto joined = numbers(metadata.joined);
    protocol::Id context = wire_id(metadata.context);
    protocol::Id pair = wire_id(metadata.pair);
    auto told = lineage(metadata.lineage);
    return protocol::CreateRecording(builder_, &context, metadata.creator_rank, metadata.pair ? &pair : nullptr,
                                     tracked, joined, told);
  }

  Offset<Vector<const protocol::Link*>> lineage(const std::vector<AutogradMetadata::Link>& links) {
    if (links.empty()) return 0;
    protocol::Link* structs = nullptr;
    auto told = builder_.CreateUninitializedVectorOfStructs(links.size(), &structs);
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
      offsets.push_back(protocol::CreatePairBits(builder_, &id, reached));
    }
    return builder_.CreateVector(offsets);
  }

  Offset<protocol::Member> member(const Member& member) {
    // A joiner may not have a name yet: that depends on its rank.
    auto worker = text(member.name, kMaxNameBytes, "name of a worker");
    auto endpoint = text(member.endpoint, kMaxEndpointBytes, "endpoint");
    return protocol::CreateMember(builder_, member.rank, worker, endpoint, member.incarnation, member.generation,
                                  member.max_message_bytes);
  }

  template <typename T>
  Offset<Vector<T>> numbers(const std::vector<T>& numbers) {
    if (numbers.empty()) return 0;
    return builder_.CreateVector(numbers);
  }

  Offset<Vector<uint8_t>> proof(const Proof& proof) {
    if (proof.empty()) return 0;
    return builder_.CreateVector(reinterpret_cast<const uint8_t*>(proof.data()), proof.size());
  }

  Offset<Vector<uint8_t>> bits(const std::vector<bool>& bits) {
    if (bits.empty()) return 0;
    return builder_.CreateVector(bits);
  }

  flatbuffers::FlatBufferBuilder& builder_;
  PayloadWriter& payload_;
};

}  // namespace

EncodedUnion encode_body(flatbuffers::FlatBufferBuilder& builder, PayloadWriter& payload, const Body& body) {
  return std::visit(BodyEncoder(builder, payload), body);
}

}  // namespace distag::wire
