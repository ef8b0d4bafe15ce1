// Comes to a rendezvous where others say and write what they like. Input: a kind, then what it is about: the uri; words
// of a stranger to the worker that serves a tcp rendezvous; its answers to a guest; the file of a file rendezvous, as
// text and made of fields. Whoever gets a group is in it, once, and with all others; else he is told why not.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "fuzz/input.h"
#include "fuzz/refusal.h"
#include "group/rank_table.h"
#include "group/rendezvous.h"
#include "message_generated.h"
#include "support/sim_network.h"
#include "wire/codec.h"

namespace {

using namespace distag;
using fuzz::check;
using fuzz::Input;
using sim::SimLoop;
using sim::SimNetwork;
using sim::SimScheduler;
using sim::SimTransport;

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kUri = "tcp://10.0.0.1:29500";
constexpr int32_t kWorld = 3;
constexpr size_t kMostWords = 16;
constexpr Nanos kShortPatience = 100 * kMillisecond;  // with a file, which is read again and again meanwhile

// The answers of a rendezvous.
bool is_known(Status status) {
  constexpr Status kKnown[] = {Status::kInvalidArgument, Status::kInvalidState, Status::kDenied,    Status::kProtocol,
                               Status::kDeadline,        Status::kDisconnected, Status::kOverloaded};
  return std::find(std::begin(kKnown), std::end(kKnown), status) != std::end(kKnown);
}

class Joiner {
 public:
  Joiner(SimScheduler& scheduler, SimNetwork& network, const std::string& uri, const Peer& self, int32_t world_size,
         Nanos patience = kSecond)
      : loop_(scheduler, self.name), transport_(network, loop_, self.name) {
    transport_.exact = false;
    transport_.key_name = self.name;
    request_.job = "job";
    request_.world_size = world_size;
    request_.self = self;
    request_.deadline = scheduler.now() + patience;
    loop_.run([&] {
      rendezvous_ = make_rendezvous(uri, {loop_, transport_, log_});
      rendezvous_->join(request_, [this](Rendezvous::Outcome told) {
        check(!outcome);
        outcome = std::move(told);
      });
    });
  }
  ~Joiner() {
    loop_.run([this] { rendezvous_.reset(); });
  }

  // Once it was told: its group, if it has one.
  void check_outcome() const {
    check(outcome.has_value());
    if (!outcome->ok) {
      check(!outcome->error.message().empty());
      return;
    }
    std::set<int32_t> ranks;
    std::set<std::string> names;
    size_t selves = 0;
    for (const Peer& member : outcome->members) {
      check(member.rank >= 0 && ranks.insert(member.rank).second && names.insert(member.name).second);
      if (request_.world_size > 0) check(member.rank < request_.world_size);
      if (member.incarnation != request_.self.incarnation) continue;
      ++selves;
      check(member.rank == request_.self.rank && member.name == request_.self.name);
    }
    check(selves == 1 && (request_.world_size < 0 || std::cmp_equal(ranks.size(), request_.world_size)));
  }

  std::optional<Rendezvous::Outcome> outcome;

 private:
  SimLoop loop_;
  SimTransport transport_;
  Log log_;
  JoinRequest request_;
  std::unique_ptr<Rendezvous> rendezvous_;
};

Peer worker(int32_t rank) {
  const std::string name = "w" + std::to_string(rank);
  return {rank, name, "sim://" + name, 100 + static_cast<uint64_t>(rank), 0, 0};
}

// ---- words over the network ----

std::string text_of(Input& input) {
  constexpr const char* kTexts[] = {"", "job", "w0", "w1", "w2", "stranger", "sim://w2", "nowhere", "\xff\n"};
  const size_t choice = input.below(std::size(kTexts) + 1);
  return choice < std::size(kTexts) ? kTexts[choice] : std::string(200, 'x');
}

wire::Member member_of(Input& input) {
  wire::Member member = to_member(worker(static_cast<int32_t>(input.below(kWorld))));
  if (input.below(4) == 0) member.rank = static_cast<int32_t>(input.integer());
  if (input.below(4) == 0) member.name = text_of(input);
  if (input.below(8) == 0) member.endpoint = text_of(input);
  if (input.below(4) == 0) member.incarnation = 1 + input.byte();
  if (input.below(2) == 0) member.generation = input.byte();
  return member;
}

wire::Join join_of(Input& input) {
  wire::Join join{"job", wire::kProtocolVersion, kWorld, member_of(input)};
  if (input.flag()) join.member.name = "stranger";
  if (input.flag()) join.member.generation = 0;
  if (input.below(8) == 0) join.job = text_of(input);
  if (input.below(8) == 0) join.protocol = input.byte();
  if (input.below(8) == 0) join.world_size = static_cast<int32_t>(input.integer());
  if (input.below(8) == 0) join.proof = {std::byte{1}};
  if (input.below(4) == 0) join.asked = input.byte();
  return join;
}

wire::Roster roster_of(Input& input) {
  wire::Roster roster;
  if (input.below(8) == 0) {
    roster.refused = true;
    roster.error = Error(static_cast<Status>(1 + input.byte()), "no");
    return roster;
  }
  for (size_t left = input.below(5); left > 0; --left) roster.members.push_back(member_of(input));
  if (input.below(4) == 0) {
    roster.members.clear();
    for (int32_t rank = 0; rank < kWorld; ++rank) roster.members.push_back(to_member(worker(rank)));
  }
  if (input.flag()) roster.missing = {1, 2};
  roster.offset = input.flag() ? 0 : input.byte();
  roster.total = roster.offset + static_cast<uint32_t>(roster.members.size()) + (input.flag() ? 0 : input.byte());
  if (input.below(16) == 0) roster.proof = {std::byte{1}};
  if (input.below(8) == 0) roster.asked = 1 + input.byte();
  return roster;
}

// A message of the kind, or another one; its bytes may be changed, with or without a checksum that fits.
Frames word_of(Input& input, bool is_for_guest) {
  const uint8_t kind = input.byte();
  if (kind % 8 == 7) {
    const std::string bytes = input.line();
    return {Frame::copy_of(bytes.data(), bytes.size())};
  }
  wire::Body body = wire::Refuse{kind > 128 ? wire::RefuseReason::kDamaged : wire::RefuseReason::kVersion, 1, "no"};
  if (kind % 8 > 0) body = is_for_guest ? wire::Body(roster_of(input)) : wire::Body(join_of(input));
  wire::Encoded encoded;
  try {
    encoded = wire::encode({0, 0, {}, std::move(body)}, {});
  } catch (const Error& error) {
    check(error.status() == Status::kInvalidArgument);
    return {Frame::copy_of("", 0)};
  }
  const bool is_changed = kind % 8 == 1;
  if (is_changed) {
    std::vector<std::byte> bytes(encoded.header.data(), encoded.header.data() + encoded.header.size());
    for (size_t left = 1 + input.below(4); left > 0; --left)
      bytes[input.byte() % bytes.size()] = std::byte{input.byte()};
    encoded.header = Frame::of(std::move(bytes));
  }
  try {
    const wire::Arrival readable(encoded.header, {});
    if (protocol::GetSizePrefixedMessage(encoded.header.data())->checksum() == nullptr) return {encoded.header};
    return {wire::seal(encoded.header, encoded.payload)};
  } catch (const Error&) {
    return {encoded.header};  // no header any more
  }
}

class Stranger {
 public:
  Stranger(SimScheduler& scheduler, SimNetwork& network)
      : scheduler_(scheduler), loop_(scheduler, "stranger"), transport_(network, loop_, "stranger") {
    transport_.exact = false;
    transport_.key_name = "stranger";
  }
  ~Stranger() {
    loop_.run([this] {
      connection_.reset();
      acceptor_.reset();
    });
  }

  void talk(Input& input) {
    for (size_t left = kMostWords; left > 0 && !input.empty(); --left) {
      if (connection_ == nullptr || input.below(8) == 0) dial();
      const Frames word = word_of(input, false);
      loop_.run([&] { connection_->send(word); });
      scheduler_.run_for(kMillisecond);
    }
  }
  // Answers JOIN after JOIN, as long as there are words.
  void serve(Input& input) {
    AcceptorEvents events;
    events.on_message = [this, &input, left = kMostWords](const ConnectionToken& from, const Frames&) mutable {
      for (size_t words = 1 + input.below(3); words > 0 && left > 0; --words, --left) {
        acceptor_->reply(from, word_of(input, true));
      }
    };
    loop_.run([&] { acceptor_ = transport_.listen(kUri, std::move(events)); });
  }

 private:
  void dial() {
    ConnectionEvents events;
    events.on_message = [this](const Frames& frames) {
      const wire::Message answer = wire::unpack(frames, {}, transport_);
      check(std::holds_alternative<wire::Roster>(answer.body) || std::holds_alternative<wire::Refuse>(answer.body));
    };
    loop_.run([&] { connection_ = transport_.dial(kUri, std::move(events)); });
    scheduler_.run_for(kMillisecond);
  }

  SimScheduler& scheduler_;
  SimLoop loop_;
  SimTransport transport_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Acceptor> acceptor_;
};

constexpr sim::SimFaults kQuick = {.min_delay = kMicrosecond, .max_delay = kMicrosecond};

// The worker that serves and an honest guest, which comes first: whatever a stranger says, the guest keeps its place.
void check_host(Input& input) {
  SimScheduler scheduler(1);
  SimNetwork network(scheduler, kQuick);
  Joiner host(scheduler, network, kUri, worker(0), kWorld);
  Joiner guest(scheduler, network, kUri, worker(1), kWorld);
  scheduler.run_for(100 * kMillisecond);
  Stranger stranger(scheduler, network);
  stranger.talk(input);
  scheduler.run_for(2 * kSecond);
  host.check_outcome();
  guest.check_outcome();
  check(host.outcome->ok == guest.outcome->ok);
  if (!host.outcome->ok) {
    check(host.outcome->error.status() == Status::kDeadline && guest.outcome->error.status() == Status::kDeadline);
    return;
  }
  check(host.outcome->members[1].incarnation == worker(1).incarnation && host.outcome->members[2].name == "stranger");
}

void check_guest(Input& input) {
  SimScheduler scheduler(1);
  SimNetwork network(scheduler, kQuick);
  Stranger stranger(scheduler, network);
  stranger.serve(input);
  Joiner guest(scheduler, network, kUri, worker(1), input.flag() ? kWorld : -1);
  scheduler.run_for(2 * kSecond);
  guest.check_outcome();
}

// ---- files ----

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "distag_fuzz_XXXXXX").string();
    check(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

// A worker joins through a file that is there, or changes after the first look.
void check_file(const std::string& text, bool is_first) {
  Folder folder;
  SimScheduler scheduler(1);
  SimNetwork network(scheduler, kQuick);
  const auto write = [&] { std::ofstream(folder.path / "group", std::ios::binary) << text; };
  if (is_first) write();
  {
    Joiner joiner(scheduler, network, "file://" + folder.path.string(), worker(1), kWorld, kShortPatience);
    if (!is_first) write();
    scheduler.run_for(2 * kShortPatience);
    joiner.check_outcome();
    if (!joiner.outcome->ok) check(is_known(joiner.outcome->error.status()));
  }
}

Json number_or_text(Input& input) {
  switch (input.below(4)) {
    case 0:
      return text_of(input);
    case 1:
      return input.number();
    case 2:
      return nullptr;
    default:
      return input.integer();
  }
}

// A record whose fields may be of another type.
std::string record_of(Input& input) {
  Json seats = Json::array();
  for (size_t left = input.below(4); left > 0; --left) {
    const wire::Member member = member_of(input);
    Json seat{{"rank", member.rank},
              {"name", input.flag() ? "w" + std::to_string(member.rank) : "x"},
              {"endpoint", "sim://x"},
              {"incarnation", member.incarnation},
              {"generation", member.generation},
              {"max_message_bytes", 0},
              {"is_gone", input.flag()}};
    if (input.below(8) == 0) seat[input.flag() ? "rank" : "name"] = number_or_text(input);
    seats.push_back(std::move(seat));
  }
  Json book{{"has_met", input.flag()}, {"seats", seats}, {"withdrawn", {2}}, {"generations", {{"w1", input.byte()}}}};
  if (input.flag()) book["misled"] = {{"name", "w2"}, {"world_size", input.integer()}};
  Json record{{"job", "job"}, {"protocol", wire::kProtocolVersion}, {"world_size", kWorld}, {"book", book}};
  constexpr const char* kFields[] = {"job", "protocol", "world_size", "book", "has_met", "seats", "withdrawn"};
  if (input.below(4) == 0) {
    const size_t field = input.below(std::size(kFields));
    (field < 4 ? record : record["book"])[kFields[field]] = number_or_text(input);
  }
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// ---- uris ----

void check_uri(const std::string& uri) {
  SimScheduler scheduler(1);
  SimNetwork network(scheduler);
  SimLoop loop(scheduler, "loop");
  SimTransport transport(network, loop, "loop");
  Log log;
  loop.run([&] {
    fuzz::is_taken([&] { check(make_rendezvous(uri, {loop, transport, log}) != nullptr); }, Status::kUnsupported);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const uint8_t kind = input.byte();
  switch (kind % 5) {
    case 0:
      check_host(input);
      break;
    case 1:
      check_guest(input);
      break;
    case 2:
      check_uri(input.line());
      break;
    case 3:
      check_file(input.rest(), kind < 128);
      break;
    default:
      check_file(record_of(input), kind < 128);
  }
  return 0;
}
