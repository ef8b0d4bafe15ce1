#include <algorithm>
#include <utility>
#include <vector>

#include "message_generated.h"
#include "wire/decoder.h"

namespace distag::wire {
namespace {

Id decode_id(const protocol::Id& id, const char* what) {
  if (id.maker() == 0) malformed("a {} without a maker", what);
  return {id.maker(), id.counter()};
}

Id decode_optional_id(const protocol::Id* id, const char* what) { return id == nullptr ? Id{} : decode_id(*id, what); }

EntryName decode_entry(const protocol::EntryName& entry) {
  return {decode_id(entry.mesh(), "mesh"), entry.call(), entry.line()};
}

std::string decode_name(DecodeState& state, const flatbuffers::String* name, const char* what) {
  if (name == nullptr || name->size() == 0) malformed("a {} is empty", what);
  return decode_text(state, name, kMaxNameBytes, what);
}

template <typename T>
std::vector<T> decode_numbers(DecodeState& state, const flatbuffers::Vector<T>* numbers) {
  if (numbers == nullptr) return {};
  state.spend(numbers->size() * sizeof(T));
  check_aligned(numbers->Data(), alignof(T));
  return std::vector<T>(numbers->begin(), numbers->end());
}

std::vector<bool> decode_bits(DecodeState& state, const flatbuffers::Vector<uint8_t>* bits) {
  std::vector<bool> decoded;
  if (bits == nullptr) return decoded;
  state.spend(bits->size());
  decoded.reserve(bits->size());
  for (uint8_t bit : *bits) {
    if (bit > 1) malformed("a bit of {}", bit);
    decoded.push_back(bit == 1);
  }
  return decoded;
}

Error decode_error(DecodeState& state, const protocol::Error& error) {
  int32_t number = error.status();
  if (number <= 0) malformed("an error of status {}", number);
  auto status = static_cast<Status>(number);
  // A number that a later version may have added becomes REMOTE, an error of the other side.
  bool is_known = number >= static_cast<int32_t>(Status::kUser) || std::string_view(status_name(status)) != "UNKNOWN";
  Error decoded(is_known ? status : Status::kRemote,
                decode_text(state, error.text(), kMaxErrorBytes, "text of an error"));
  return decoded.set_origin_rank(error.origin_rank()).set_may_have_run(error.may_have_run());
}

// Sets `failed` when there is an error.
Error decode_optional_error(DecodeState& state, const protocol::Error* error, bool* failed) {
  *failed = error != nullptr;
  return error == nullptr ? Error() : decode_error(state, *error);
}

Values decode_values(DecodeState& state, const flatbuffers::Vector<protocol::Value>* types,
                     const flatbuffers::Vector<flatbuffers::Offset<void>>* tables) {
  Values values;
  if (tables == nullptr) return values;
  state.spend(tables->size() * sizeof(uint32_t));
  values.reserve(tables->size());
  for (unsigned i = 0; i < tables->size(); ++i) {
    values.push_back(decode_value(state, static_cast<uint8_t>(types->Get(i)), tables->Get(i), 1));
  }
  return values;
}

std::vector<AutogradMetadata::Link> decode_lineage(DecodeState& state,
                                                   const flatbuffers::Vector<const protocol::Link*>* links) {
  std::vector<AutogradMetadata::Link> decoded;
  if (links == nullptr) return decoded;
  state.spend(links->size() * sizeof(AutogradMetadata::Link));
  check_aligned(links->Data(), alignof(protocol::Link));
  decoded.reserve(links->size());
  for (const protocol::Link* link : *links) {
    const Id on{link->on().maker(), link->on().counter()};
    if (!on && (on.counter != 0 || link->on_slot() > 1)) malformed("a link to nothing known");
    decoded.push_back({decode_id(link->pair(), "pair"), on, link->slot(), link->on_slot()});
  }
  return decoded;
}

AutogradMetadata decode_metadata(DecodeState& state, const protocol::Recording* table) {
  AutogradMetadata metadata;
  if (table == nullptr) return metadata;
  metadata.context = decode_id(*table->context(), "context");
  metadata.creator_rank = table->creator_rank();
  if (metadata.creator_rank < 0) malformed("a context of rank {}", metadata.creator_rank);
  metadata.pair = decode_optional_id(table->pair(), "pair");
  metadata.tracked = decode_bits(state, table->tracked());
  if (!metadata.pair && !metadata.tracked.empty()) malformed("tracked tensors without a pair");
  metadata.joined = decode_numbers(state, table->joined());
  metadata.lineage = decode_lineage(state, table->lineage());
  if (!metadata.pair && !metadata.lineage.empty()) malformed("lineage without a pair");
  return metadata;
}

// With a pair there must be one bit for each tensor.
void check_tracked(const DecodeState& state, const AutogradMetadata& metadata, const Values& values) {
  if (!metadata.pair || state.is_outline) return;
  size_t count = 0;
  for (const Value& value : values) {
    value.for_each_tensor([&count](const Tensor&) { ++count; });
  }
  if (count != metadata.tracked.size()) malformed("{} tracked bits for {} tensors", metadata.tracked.size(), count);
}

Proof decode_proof(const flatbuffers::Vector<uint8_t>* bytes) {
  constexpr size_t kMaxProofBytes = 256;
  if (bytes == nullptr) return {};
  if (bytes->size() > kMaxProofBytes) malformed("a proof of {} bytes, more than {}", bytes->size(), kMaxProofBytes);
  const auto* first = reinterpret_cast<const std::byte*>(bytes->data());
  return {first, first + bytes->size()};
}

Hello decode(DecodeState& state, const protocol::Hello& table) {
  Hello hello;
  hello.job = decode_name(state, table.job(), "job");
  hello.protocol = table.protocol();
  hello.features = table.features();
  hello.name = decode_name(state, table.name(), "name of a worker");
  hello.rank = table.rank();
  hello.incarnation = table.incarnation();
  hello.generation = table.generation();
  hello.endpoint = decode_text(state, table.endpoint(), kMaxEndpointBytes, "worker's endpoint");
  hello.wanted = table.wanted();
  hello.max_message_bytes = table.max_message_bytes();
  hello.proof = decode_proof(table.proof());
  if (hello.rank < 0) malformed("a worker of rank {}", hello.rank);
  if (hello.incarnation == 0) malformed("a worker of incarnation 0");
  return hello;
}

Welcome decode(DecodeState& state, const protocol::Welcome& table) {
  if (table.incarnation() == 0) malformed("a worker of incarnation 0");
  if (table.next() == 0) malformed("number 0 expected next");
  return {table.incarnation(), table.next(), decode_proof(table.proof()),
          decode_text(state, table.lack(), kMaxErrorBytes, "lack")};
}

Refuse decode(DecodeState& state, const protocol::Refuse& table) {
  Refuse refuse;
  if (table.reason() <= protocol::RefuseReason::Denied) refuse.reason = static_cast<RefuseReason>(table.reason());
  refuse.incarnation = table.incarnation();
  refuse.text = decode_text(state, table.text(), kMaxErrorBytes, "reason of a refusal");
  return refuse;
}

Ack decode(DecodeState&, const protocol::Ack&) { return {}; }
Ping decode(DecodeState&, const protocol::Ping&) { return {}; }
Leave decode(DecodeState&, const protocol::Leave&) { return {}; }

Chunk decode(DecodeState& state, const protocol::Chunk& table) {
  Chunk chunk;
  chunk.transfer = table.transfer();
  chunk.offset = table.offset();
  chunk.total = table.total();
  chunk.abandoned = table.abandoned();
  if (chunk.transfer == 0) malformed("a chunk of transfer 0");
  if (chunk.abandoned) return chunk;
  const Frame* piece = state.payload.take_frame();
  if (piece == nullptr || piece->size() == 0) malformed("a chunk without bytes");
  if (chunk.offset > chunk.total || piece->size() > chunk.total - chunk.offset) {
    malformed("{} bytes at {} of a transfer of {}", piece->size(), chunk.offset, chunk.total);
  }
  chunk.piece = *piece;
  return chunk;
}

Call decode(DecodeState& state, const protocol::Call& table) {
  Call call;
  call.call = decode_id(*table.call(), "call");
  call.function = decode_name(state, table.function(), "name of a function");
  call.args = decode_values(state, table.args_type(), table.args());
  call.time_left = table.time_left();
  if (call.time_left < kForever) malformed("a call with {} ns left", call.time_left);
  call.metadata = decode_metadata(state, table.recording());
  check_tracked(state, call.metadata, call.args);
  call.label = decode_text(state, table.label(), kMaxNameBytes, "label");
  call.keep = decode_optional_id(table.keep(), "value to keep");
  call.cost = table.cost();
  // As the standard says, a malformed traceparent is dropped, in any form. A valid one has a fixed size.
  if (const flatbuffers::String* text = table.traceparent(); text != nullptr) {
    call.trace_parent = TraceParent::parse({text->c_str(), text->size()});
    call.has_bad_trace_parent = call.trace_parent == nullptr;
  }
  return call;
}

Reply decode(DecodeState& state, const protocol::Reply& table) {
  Reply reply;
  reply.call = decode_id(*table.call(), "call");
  reply.error = decode_optional_error(state, table.error(), &reply.failed);
  bool has_result = table.result_type() != protocol::Value::NONE;
  if (has_result == reply.failed) malformed("an answer with {}", has_result ? "a result and an error" : "no result");
  if (has_result) reply.result = decode_value(state, static_cast<uint8_t>(table.result_type()), table.result(), 1);
  reply.metadata = decode_metadata(state, table.recording());
  check_tracked(state, reply.metadata, {reply.result});
  reply.taken = table.taken();
  return reply;
}

Credit decode(DecodeState&, const protocol::Credit& table) { return {table.taken()}; }

WantCredit decode(DecodeState&, const protocol::WantCredit& table) { return {table.taken()}; }

Cancel decode(DecodeState&, const protocol::Cancel& table) { return {decode_id(*table.call(), "call")}; }

Member decode_member(DecodeState& state, const protocol::Member& table) {
  Member member;
  member.rank = table.rank();
  member.name = decode_text(state, table.name(), kMaxNameBytes, "name of a worker");
  member.endpoint = decode_text(state, table.endpoint(), kMaxEndpointBytes, "worker's endpoint");
  member.incarnation = table.incarnation();
  member.generation = table.generation();
  member.max_message_bytes = table.max_message_bytes();
  if (member.rank < -1) malformed("a worker of rank {}", member.rank);
  if (member.incarnation == 0) malformed("a worker of incarnation 0");
  return member;
}

Join decode(DecodeState& state, const protocol::Join& table) {
  Join join;
  join.job = decode_name(state, table.job(), "job");
  join.protocol = table.protocol();
  join.world_size = table.world_size();
  join.member = decode_member(state, *table.member());
  join.proof = decode_proof(table.proof());
  join.asked = table.asked();
  join.host = decode_text(state, table.host(), kMaxHostBytes, "host");
  join.process = table.process();
  return join;
}

Roster decode(DecodeState& state, const protocol::Roster& table) {
  Roster roster;
  roster.error = decode_optional_error(state, table.error(), &roster.refused);
  for (unsigned i = 0; table.members() != nullptr && i < table.members()->size(); ++i) {
    roster.members.push_back(decode_member(state, *table.members()->Get(i)));
  }
  roster.missing = decode_numbers(state, table.missing());
  roster.offset = table.offset();
  roster.total = table.total();
  if (roster.offset > roster.total || roster.members.size() > roster.total - roster.offset) {
    malformed("{} members at {} of a roster of {}", roster.members.size(), roster.offset, roster.total);
  }
  roster.proof = decode_proof(table.proof());
  roster.asked = table.asked();
  return roster;
}

ShutdownPoll decode(DecodeState& state, const protocol::ShutdownPoll& table) {
  return {table.round(), decode_numbers(state, table.missing())};
}

ShutdownAnswer decode(DecodeState& state, const protocol::ShutdownAnswer& table) {
  ShutdownAnswer answer;
  answer.round = table.round();
  answer.stopping = table.stopping();
  answer.idle = table.idle();
  if (table.counts() != nullptr) {
    state.spend(table.counts()->size() * sizeof(protocol::PeerCount));
    check_aligned(table.counts()->Data(), alignof(protocol::PeerCount));
    for (const protocol::PeerCount* count : *table.counts()) {
      answer.counts.push_back({count->peer(), count->requests_sent(), count->requests_received()});
    }
  }
  answer.lost = decode_numbers(state, table.lost());
  return answer;
}

ShutdownVerdict decode(DecodeState&, const protocol::ShutdownVerdict& table) { return {table.round()}; }

// Sets the two ids that all messages of a pass begin with.
template <typename T, typename Table>
T begin_pass_message(const Table& table) {
  T message;
  message.context = decode_id(*table.context(), "context");
  message.pass = decode_id(*table.pass(), "pass");
  return message;
}

Joined decode(DecodeState&, const protocol::Joined& table) {
  return {decode_id(*table.context(), "context"), decode_optional_id(table.pass(), "pass")};
}

Release decode(DecodeState& state, const protocol::Release& table) {
  Release release;
  if (table.contexts() == nullptr) return release;
  state.spend(table.contexts()->size() * sizeof(protocol::Id));
  check_aligned(table.contexts()->Data(), alignof(protocol::Id));
  for (const protocol::Id* id : *table.contexts()) release.contexts.push_back(decode_id(*id, "context"));
  return release;
}

std::vector<PairBits> decode_pairs(DecodeState& state,
                                   const flatbuffers::Vector<flatbuffers::Offset<protocol::PairBits>>* pairs) {
  std::vector<PairBits> decoded;
  for (unsigned i = 0; pairs != nullptr && i < pairs->size(); ++i) {
    const protocol::PairBits& pair = *pairs->Get(i);
    Id id = decode_id(*pair.pair(), "pair");
    decoded.push_back({id.counter, id.maker, decode_bits(state, pair.bits())});
  }
  return decoded;
}

Discover decode(DecodeState& state, const protocol::Discover& table) {
  auto discover = begin_pass_message<Discover>(table);
  discover.request = decode_id(*table.request(), "request");
  discover.retain_graph = table.retain_graph();
  discover.pairs = decode_pairs(state, table.pairs());
  discover.creates_graph = table.create_graph();
  if (table.entries() == nullptr) return discover;
  state.spend(table.entries()->size() * sizeof(EntryName));
  check_aligned(table.entries()->Data(), alignof(protocol::EntryName));
  for (const protocol::EntryName* entry : *table.entries()) {
    discover.entries.push_back(decode_entry(*entry));
  }
  return discover;
}

Discovered decode(DecodeState& state, const protocol::Discovered& table) {
  auto discovered = begin_pass_message<Discovered>(table);
  discovered.request = decode_id(*table.request(), "request");
  discovered.error = decode_optional_error(state, table.error(), &discovered.failed);
  discovered.participants = decode_numbers(state, table.participants());
  discovered.has_entries = table.has_entries();
  return discovered;
}

Go decode(DecodeState&, const protocol::Go& table) { return begin_pass_message<Go>(table); }

Entered decode(DecodeState&, const protocol::Entered& table) {
  auto entered = begin_pass_message<Entered>(table);
  entered.entry = decode_entry(*table.entry());
  return entered;
}

Start decode(DecodeState&, const protocol::Start& table) {
  auto start = begin_pass_message<Start>(table);
  start.retain_graph = table.retain_graph();
  start.creates_graph = table.create_graph();
  return start;
}

Expect decode(DecodeState& state, const protocol::Expect& table) {
  auto expect = begin_pass_message<Expect>(table);
  expect.retain_graph = table.retain_graph();
  expect.sends = decode_pairs(state, table.sends());
  expect.check = table.check();
  expect.creates_graph = table.create_graph();
  if (expect.sends.empty()) malformed("an EXPECT of nothing");
  return expect;
}

Grad decode(DecodeState& state, const protocol::Grad& table) {
  auto grad = begin_pass_message<Grad>(table);
  grad.pair = decode_id(*table.pair(), "pair");
  grad.retain_graph = table.retain_graph();
  grad.fast = table.fast();
  grad.planned = table.planned();
  if (table.done() != nullptr) {
    grad.done = true;
    grad.grads_sent = table.done()->sent();
    grad.grads_received = table.done()->received();
  }
  grad.live = decode_bits(state, table.live());
  grad.gradients = decode_values(state, table.gradients_type(), table.gradients());
  size_t live_count = 0;
  for (bool bit : grad.live) live_count += bit ? 1 : 0;
  if (live_count != grad.gradients.size())
    malformed("{} gradients for {} live bits", grad.gradients.size(), live_count);
  for (const Value& gradient : grad.gradients) {
    if (gradient.kind() != ValueKind::kTensor && !gradient.is_null()) {
      malformed("a gradient that is {}", kind_name(gradient.kind()));
    }
  }
  grad.creates_graph = table.create_graph();
  grad.recording = decode_metadata(state, table.recording());
  if (grad.recording.context && !grad.creates_graph) malformed("gradients with a history, in a pass that gives none");
  check_tracked(state, grad.recording, grad.gradients);
  return grad;
}

Done decode(DecodeState& state, const protocol::Done& table) {
  auto done = begin_pass_message<Done>(table);
  done.error = decode_optional_error(state, table.error(), &done.failed);
  done.grads_sent = table.grads_sent();
  done.grads_received = table.grads_received();
  done.grads_to = decode_numbers(state, table.grads_to());
  done.replan = table.replan();
  done.creates_graph = table.create_graph();
  if (done.replan && !done.failed) malformed("a plan that did not hold, without a reason");
  return done;
}

Verdict decode(DecodeState& state, const protocol::Verdict& table) {
  auto verdict = begin_pass_message<Verdict>(table);
  verdict.commit = table.commit();
  bool failed = false;
  verdict.error = decode_optional_error(state, table.error(), &failed);
  if (failed == verdict.commit)
    malformed("a verdict of {}", failed ? "commit with an error" : "abort without a reason");
  return verdict;
}

Probe decode(DecodeState&, const protocol::Probe& table) {
  auto probe = begin_pass_message<Probe>(table);
  probe.round = table.round();
  return probe;
}

ProbeAnswer decode(DecodeState& state, const protocol::ProbeAnswer& table) {
  auto answer = begin_pass_message<ProbeAnswer>(table);
  answer.round = table.round();
  answer.idle = table.idle();
  answer.grads_sent = table.grads_sent();
  answer.grads_received = table.grads_received();
  size_t count = table.unreached() == nullptr ? 0 : table.unreached()->size();
  state.spend(count * sizeof(uint32_t));
  for (unsigned i = 0; i < count; ++i) {
    answer.unreached.push_back(decode_text(state, table.unreached()->Get(i), kMaxNoteBytes, "name of a call"));
  }
  answer.grads_to = decode_numbers(state, table.grads_to());
  return answer;
}

Holders decode(DecodeState& state, const protocol::Holders& table) {
  Holders holders;
  holders.context = decode_id(*table.context(), "context");
  holders.request = decode_id(*table.request(), "request");
  holders.answer = table.answer();
  holders.holders = decode_numbers(state, table.holders());
  return holders;
}

Fork decode(DecodeState&, const protocol::Fork& table) {
  return {decode_id(*table.value(), "value"), decode_id(*table.fork(), "fork")};
}
Forked decode(DecodeState&, const protocol::Forked& table) {
  return {decode_id(*table.fork(), "fork"), table.holder()};
}
Drop decode(DecodeState&, const protocol::Drop& table) { return {decode_id(*table.fork(), "fork")}; }
Seek decode(DecodeState&, const protocol::Seek& table) { return {decode_id(*table.value(), "value")}; }
Sought decode(DecodeState&, const protocol::Sought& table) { return {decode_id(*table.value(), "value")}; }

Part decode(DecodeState& state, const protocol::Part& table) {
  Part part;
  part.mesh = decode_id(*table.mesh(), "mesh");
  part.line = decode_text(state, table.line(), kMaxNameBytes, "name of a line");
  part.number = table.number();
  part.part = table.part();
  part.hash = table.hash();
  part.pieces = decode_values(state, table.pieces_type(), table.pieces());
  if (part.number == 0) malformed("a part of call 0");
  for (const Value& piece : part.pieces) {
    const bool is_unstored = state.is_outline && piece.is_null();
    if (piece.kind() != ValueKind::kTensor && !is_unstored) malformed("a piece that is {}", kind_name(piece.kind()));
  }
  return part;
}

Calls decode(DecodeState& state, const protocol::Calls& table) {
  constexpr size_t kMostCalls = 64;
  Calls calls;
  calls.mesh = decode_id(*table.mesh(), "mesh");
  calls.line = decode_text(state, table.line(), kMaxNameBytes, "name of a line");
  const size_t count = table.calls() == nullptr ? 0 : table.calls()->size();
  const size_t texts = table.texts() == nullptr ? 0 : table.texts()->size();
  if (count > kMostCalls || texts != count) malformed("{} calls with {} texts", count, texts);
  if (count == 0) return calls;
  state.spend(count * sizeof(protocol::CallHash));
  check_aligned(table.calls()->Data(), alignof(protocol::CallHash));
  for (unsigned i = 0; i < count; ++i) {
    const protocol::CallHash& made = *table.calls()->Get(i);
    const uint64_t expected = i == 0 ? std::max<uint64_t>(1, made.number()) : calls.calls.back().number + 1;
    if (made.number() != expected) malformed("call {} where {} was expected", made.number(), expected);
    calls.calls.push_back(
        {made.number(), made.hash(), decode_text(state, table.texts()->Get(i), kMaxNoteBytes, "text of a call")});
  }
  return calls;
}

MeshEnd decode(DecodeState& state, const protocol::MeshEnd& table) {
  MeshEnd end;
  end.mesh = decode_id(*table.mesh(), "mesh");
  bool failed = false;
  end.error = decode_optional_error(state, table.error(), &failed);
  end.left = table.left();
  return end;
}

CallHash decode_last(const protocol::CallHash* last) {
  if (last == nullptr) return {};
  return {last->number(), last->hash()};
}

Where decode(DecodeState& state, const protocol::Where& table) {
  return {decode_id(*table.mesh(), "mesh"), decode_text(state, table.line(), kMaxNameBytes, "name of a line"),
          decode_last(table.last()), table.proposed()};
}

Here decode(DecodeState& state, const protocol::Here& table) {
  Here here;
  here.mesh = decode_id(*table.mesh(), "mesh");
  here.line = decode_text(state, table.line(), kMaxNameBytes, "name of a line");
  here.is_open = table.is_open();
  here.in_call = table.in_call();
  here.number = table.number();
  if (table.text() != nullptr) here.text = decode_text(state, table.text(), kMaxNoteBytes, "text of a call");
  here.age = table.age();
  here.waits_for = decode_numbers(state, table.waits_for());
  here.last = decode_last(table.last());
  constexpr int64_t kOldest = int64_t{1} << 61;  // ages are added up
  if (here.age < 0 || here.age > kOldest) malformed("an age of {}", here.age);
  return here;
}

// A header that stands for a long one has nothing more to decode: see codec.cpp.
Body decode_long(DecodeState&, const void*) { malformed("a LONG within a LONG"); }

template <typename Table>
Body decode_as(DecodeState& state, const void* table) {
  return decode(state, *static_cast<const Table*>(table));
}

}  // namespace

Body decode_body(DecodeState& state, uint8_t type, const void* table) {
  using Decode = Body (*)(DecodeState&, const void*);
  // In the order of the union, which is that of Body with Long.
  static constexpr Decode kDecoders[] = {decode_as<protocol::Hello>,
                                         decode_as<protocol::Welcome>,
                                         decode_as<protocol::Refuse>,
                                         decode_as<protocol::Ack>,
                                         decode_as<protocol::Ping>,
                                         decode_as<protocol::Leave>,
                                         decode_as<protocol::Chunk>,
                                         decode_as<protocol::Call>,
                                         decode_as<protocol::Reply>,
                                         decode_as<protocol::Cancel>,
                                         decode_as<protocol::Join>,
                                         decode_as<protocol::Roster>,
                                         decode_as<protocol::ShutdownPoll>,
                                         decode_as<protocol::ShutdownAnswer>,
                                         decode_as<protocol::ShutdownVerdict>,
                                         decode_as<protocol::Joined>,
                                         decode_as<protocol::Release>,
                                         decode_as<protocol::Discover>,
                                         decode_as<protocol::Discovered>,
                                         decode_as<protocol::Start>,
                                         decode_as<protocol::Grad>,
                                         decode_as<protocol::Done>,
                                         decode_as<protocol::Verdict>,
                                         decode_as<protocol::Probe>,
                                         decode_as<protocol::ProbeAnswer>,
                                         decode_as<protocol::Holders>,
                                         decode_as<protocol::Fork>,
                                         decode_as<protocol::Forked>,
                                         decode_as<protocol::Drop>,
                                         decode_as<protocol::Seek>,
                                         decode_as<protocol::Sought>,
                                         decode_long,
                                         decode_as<protocol::Part>,
                                         decode_as<protocol::Calls>,
                                         decode_as<protocol::MeshEnd>,
                                         decode_as<protocol::Where>,
                                         decode_as<protocol::Here>,
                                         decode_as<protocol::Go>,
                                         decode_as<protocol::Entered>,
                                         decode_as<protocol::Credit>,
                                         decode_as<protocol::WantCredit>,
                                         decode_as<protocol::Expect>};
  static_assert(std::size(kDecoders) == std::variant_size_v<Body> + 1);
  static_assert(std::size(kDecoders) == static_cast<size_t>(protocol::Body::MAX));
  if (type == 0 || type > std::size(kDecoders)) malformed("a body of kind {}", type);
  return kDecoders[type - 1](state, table);
}

}  // namespace distag::wire
