// Two honest workers, and two members that send what they like to one of them. Input: whether the transport is exact,
// then steps: HELLOs, numbered messages, pieces of payload, answers, damaged messages and raw bytes. What each comes to
// has to be what schemas/session.fbs says; the honest two go on speaking, and the rogues' memory is bounded.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/violation.h"
#include "fuzz/input.h"
#include "fuzz/rogue.h"

namespace {

using namespace distag;
using fuzz::check;
using fuzz::Input;
using fuzz::Rogue;
using Line = Rogue::Line;
using Stand = Rogue::Stand;
using wire::RefuseReason;

constexpr size_t kMostSteps = 40;
constexpr size_t kMostMessage = size_t{1} << 20;
constexpr size_t kMostTransfers = kMostMessage + kMostMessage / 8;
constexpr size_t kTransferOverhead = 256;
constexpr uint64_t kNeverSent = 1000;

// The bytes handed out and not given back.
class CountedMemory final : public FrameMemory {
 public:
  std::shared_ptr<std::byte> allocate(size_t size) override {
    *bytes_ += size;
    return {new std::byte[size], [size, bytes = bytes_](std::byte* memory) {
              delete[] memory;
              *bytes -= size;
            }};
  }
  size_t bytes() const { return *bytes_; }

 private:
  const std::shared_ptr<size_t> bytes_ = std::make_shared<size_t>(0);
};

class Play {
 public:
  explicit Play(Input& input)
      : in_(input),
        is_exact_(input.flag()),
        network_(scheduler_, {.min_delay = kMicrosecond, .max_delay = kMicrosecond}),
        a_(scheduler_, network_, "a", 0, config(memory_)),
        b_(scheduler_, network_, "b", 1),
        rogues_{Rogue(scheduler_, network_, "c", 2, is_exact_), Rogue(scheduler_, network_, "d", 3, is_exact_)} {
    for (Node* node : {&a_, &b_}) {
      node->transport->exact = is_exact_;
      node->transport->key_name = node->self().name;
    }
    listen(a_, b_, heard_by_a_);
    listen(b_, a_, heard_by_b_);
    a_.loop.run([this] {
      for (const Rogue& rogue : rogues_) a_.session->add_peer(rogue.peer);
    });
  }

  void run() {
    for (size_t i = 0; i < kMostSteps && !in_.empty(); ++i) step(rogues_[in_.below(2)]);
    speak();
    for (Node* node : {&a_, &b_}) {
      check(std::none_of(node->lost.begin(), node->lost.end(),
                         [this](const auto& loss) { return loss.first == a_.id() || loss.first == b_.id(); }));
    }
    a_.stop();
    check(memory_->bytes() == 0);
  }

 private:
  static SessionConfig config(const std::shared_ptr<CountedMemory>& memory) {
    SessionConfig config;
    config.limits.max_message_bytes = kMostMessage;
    config.memory = memory;
    return config;
  }

  void step(Rogue& rogue) {
    using Step = void (Play::*)(Rogue&);
    constexpr Step kSteps[] = {&Play::greet,  &Play::hello,  &Play::say,  &Play::say, &Play::send_piece,
                               &Play::answer, &Play::damage, &Play::tell, &Play::raw};
    (this->*kSteps[in_.below(std::size(kSteps))])(rogue);
    a_.messages.clear();
    check_memory();
    check_acknowledged();
  }

  static void listen(Node& node, const Node& other, std::vector<uint64_t>& heard) {
    node.know(other);
    node.on_each = [&other, &heard](const Peer& from, const wire::Message& message) {
      if (from.incarnation == other.id()) heard.push_back(std::get<wire::ShutdownVerdict>(message.body).round);
    };
  }

  void settle() { scheduler_.run_for(kMillisecond); }

  // The honest two hear each other, whatever else is said.
  void speak() {
    count_.push_back(count_.size() + 1);
    a_.say(b_, count_.back());
    b_.say(a_, count_.back());
    settle();
    check(heard_by_a_ == count_ && heard_by_b_ == count_);
  }

  void tell(Rogue& rogue) {
    speak();
    if (rogue.stand == Stand::kMember) a_.send(rogue.peer.incarnation, wire::ShutdownVerdict{1});
    settle();
  }

  void check_memory() {
    size_t most = 0;
    for (const Rogue& rogue : rogues_) {
      if (rogue.stand != Stand::kMember) continue;
      size_t claimed = 0;
      for (const auto& [id, begun] : rogue.transfers) claimed += begun.total;
      most += rogue.are_transfers_known ? claimed : kMostTransfers;
    }
    check(memory_->bytes() <= most);
  }

  // No more than was sent. Whether the last word of one that has left was LEAVE is not always known.
  void check_acknowledged() {
    for (const Rogue& rogue : rogues_) {
      check(rogue.acknowledged < rogue.next + (rogue.stand == Stand::kLeft ? 1 : 0));
    }
  }

  // ---- what has become of a rogue ----

  const Error* loss_of(const Rogue& rogue) const {
    for (const auto& [incarnation, error] : a_.lost) {
      if (incarnation == rogue.peer.incarnation) return &error;
    }
    return nullptr;
  }
  bool has_left(const Rogue& rogue) const {
    return std::find(a_.left.begin(), a_.left.end(), rogue.peer.incarnation) != a_.left.end();
  }
  void expect_as_before(const Rogue& rogue) const {
    check((loss_of(rogue) != nullptr) == (rogue.stand == Stand::kLost));
    check(has_left(rogue) == (rogue.stand == Stand::kLeft));
  }
  void expect_lost(Rogue& rogue, Status status) {
    const Error* const error = loss_of(rogue);
    check(error != nullptr && error->status() == status);
    rogue.stand = Stand::kLost;
    expect_as_before(rogue);
  }
  void expect_violation(Rogue& rogue) {
    expect_lost(rogue, Status::kProtocol);
    check(rogue.is_refused(RefuseReason::kProtocol));
  }
  void expect_silence(const Rogue& rogue) const {
    check(rogue.answers.empty());
    expect_as_before(rogue);
  }
  void expect_refused(const Rogue& rogue, RefuseReason reason) const {
    check(rogue.is_refused(reason));
    expect_as_before(rogue);
  }
  // No message of this connection is heard any more.
  void expect_damaged(Rogue& rogue) {
    expect_refused(rogue, RefuseReason::kDamaged);
    if (rogue.line == Line::kGreeted) rogue.line = Line::kMuted;
  }
  // Whether the message was for a former member or on an unwatched line, and so had no effect.
  bool is_in_vain(const Rogue& rogue) const {
    if (rogue.line == Line::kMuted || (rogue.line == Line::kGreeted && rogue.stand == Stand::kLeft)) {
      expect_silence(rogue);
      return true;
    }
    if (rogue.line != Line::kGreeted || rogue.stand == Stand::kMember) return false;
    expect_refused(rogue, RefuseReason::kFenced);
    return true;
  }

  // ---- steps ----

  void dial(Rogue& rogue) {
    rogue.dial(a_.session->endpoint());
    settle();
  }

  // A new connection, and a HELLO as it should be.
  void greet(Rogue& rogue) {
    dial(rogue);
    check(rogue.send(rogue.pack({0, 0, {}, rogue.hello(a_.id())})));
    settle();
    expect_hello(rogue, {});
  }

  void expect_hello(Rogue& rogue, std::optional<RefuseReason> refusal) {
    if (rogue.line == Line::kGreeted && rogue.stand == Stand::kMember) return expect_violation(rogue);
    if (is_in_vain(rogue)) return;
    if (refusal) return expect_refused(rogue, *refusal);
    if (rogue.stand != Stand::kMember) return expect_refused(rogue, RefuseReason::kFenced);
    const wire::Welcome* const welcome = rogue.welcome();
    check(welcome != nullptr && welcome->incarnation == a_.id() && welcome->next == rogue.next);
    expect_as_before(rogue);
    rogue.line = Line::kGreeted;
  }

  void hello(Rogue& rogue) {
    wire::Hello hello = rogue.hello(in_.flag() ? a_.id() : 0);
    const std::optional<RefuseReason> refusal = spoil(rogue, hello);
    if (!rogue.send(rogue.pack({0, 0, {}, std::move(hello)}))) return;
    settle();
    expect_hello(rogue, refusal);
  }

  // Something that is wrong about it, and what is said to that.
  std::optional<RefuseReason> spoil(const Rogue& rogue, wire::Hello& hello) {
    switch (in_.below(12)) {
      case 0:
        hello.protocol = 99;
        return RefuseReason::kVersion;
      case 1:
        hello.job = "another";
        return RefuseReason::kJob;
      case 2:
        hello.proof = {std::byte{1}};
        return RefuseReason::kKey;
      case 3:
        hello.name = "b";
        return RefuseReason::kDenied;
      case 4:
        hello.name = "b";
        hello.rank = 1;
        hello.incarnation = b_.id();
        return RefuseReason::kDenied;
      case 5:
        hello.incarnation = a_.id();
        return RefuseReason::kIncarnation;
      case 6:
        hello.wanted = b_.id();
        return RefuseReason::kIncarnation;
      case 7:
        hello.incarnation = b_.id();
        return RefuseReason::kProtocol;
      case 8:
        hello.rank = 9;
        return rogue.stand == Stand::kMember ? RefuseReason::kProtocol : RefuseReason::kFenced;
      case 9:
        hello.incarnation = 815;
        return RefuseReason::kReplaced;
      case 10:
        hello.incarnation = 815;
        hello.generation = 9;
        return RefuseReason::kUnknown;
      default:
        hello.incarnation = 815;
        hello.generation = 9;
        hello.endpoint = "nowhere";
        return RefuseReason::kUnreachable;
    }
  }

  enum class Meaning { kHeard, kLeave, kAck, kForbidden };

  std::pair<wire::Body, Meaning> body_to_say() {
    switch (in_.below(9)) {
      case 0:
        return {wire::Leave{}, Meaning::kLeave};
      case 1:
        return {wire::Ack{}, Meaning::kAck};
      case 2:
        return {wire::Welcome{a_.id(), 1}, Meaning::kForbidden};
      case 3:
        return {wire::Refuse{RefuseReason::kStopping, a_.id(), "bye"}, Meaning::kForbidden};
      case 4:
        return {wire::ShutdownPoll{1, {b_.id()}}, Meaning::kHeard};
      case 5:
        return {a_.big_call(in_.flag() ? 8 : size_t{128} << 10), Meaning::kHeard};
      default:
        return {wire::Ping{}, Meaning::kHeard};
    }
  }

  // A well-formed message, in or out of turn.
  void say(Rogue& rogue) {
    auto [body, meaning] = body_to_say();
    constexpr int64_t kPlaces[] = {0, 0, 0, 0, 0, -1, 1, 7};
    int64_t place = kPlaces[in_.below(std::size(kPlaces))];
    if (static_cast<int64_t>(rogue.next) + place < 1) place = 0;
    const bool is_numbered = in_.below(4) != 0;
    const uint64_t number = is_numbered ? rogue.next + static_cast<uint64_t>(place) : 0;
    const bool is_honest = in_.below(8) != 0;
    const uint64_t ack = is_honest ? rogue.received : kNeverSent;
    if (!rogue.send(rogue.pack({number, ack, {}, std::move(body)}))) return;
    settle();
    if (is_in_vain(rogue)) return;
    if (rogue.line != Line::kGreeted) return expect_silence(rogue);
    if (!is_numbered) {
      if (meaning == Meaning::kAck && is_honest) return expect_silence(rogue);
      return expect_violation(rogue);
    }
    expect_numbered(rogue, place, is_honest, meaning);
  }

  void expect_numbered(Rogue& rogue, int64_t place, bool is_honest, Meaning meaning) {
    if (place > 0) return is_exact_ ? expect_violation(rogue) : expect_damaged(rogue);
    if (!is_honest) return expect_violation(rogue);
    if (place < 0) return expect_silence(rogue);
    if (meaning == Meaning::kAck || meaning == Meaning::kForbidden) return expect_violation(rogue);
    ++rogue.next;
    if (meaning == Meaning::kLeave) rogue.stand = Stand::kLeft;
    expect_silence(rogue);
  }

  // A piece of payload, sometimes of a frame that was not begun, is too large or does not fit.
  void send_piece(Rogue& rogue) {
    constexpr uint64_t kTotals[] = {1, 16, 16, 4096, kMostMessage, kMostTransfers, kMostTransfers + 1, UINT64_MAX};
    wire::Chunk chunk;
    chunk.transfer = std::max<uint64_t>(1, rogue.last_transfer + in_.below(3));
    chunk.total = kTotals[in_.below(std::size(kTotals))];
    const auto found = rogue.transfers.find(chunk.transfer);
    if (found != rogue.transfers.end()) {
      if (in_.below(4) != 0) chunk.total = found->second.total;
      chunk.offset = in_.below(4) != 0 ? found->second.received : in_.byte();
    }
    chunk.abandoned = in_.below(8) == 0;
    const size_t size = 1 + in_.below(16);
    const std::array<std::byte, 16> bytes{};
    if (!chunk.abandoned) chunk.piece = Frame::copy_of(bytes.data(), size);
    if (!rogue.send(rogue.pack({rogue.next, rogue.received, {}, chunk}))) return;
    settle();
    if (is_in_vain(rogue)) return;
    if (rogue.line != Line::kGreeted) return sync(rogue);
    if (!rogue.are_transfers_known) return sync(rogue);
    if (!take_piece(rogue, chunk)) return expect_violation(rogue);
    ++rogue.next;
    expect_silence(rogue);
  }

  // Whether it may be said.
  static bool take_piece(Rogue& rogue, const wire::Chunk& chunk) {
    if (chunk.abandoned) return rogue.transfers.erase(chunk.transfer) == 1;
    if (chunk.offset > chunk.total || chunk.piece.size() > chunk.total - chunk.offset) return false;
    if (chunk.offset == 0) {
      size_t claimed = 0;
      for (const auto& [id, begun] : rogue.transfers) claimed += begun.total + kTransferOverhead;
      if (chunk.transfer <= rogue.last_transfer || chunk.total > kMostTransfers) return false;
      if (claimed > kMostTransfers - chunk.total) return false;
      rogue.last_transfer = chunk.transfer;
      rogue.transfers[chunk.transfer] = {0, chunk.total};
    }
    const auto found = rogue.transfers.find(chunk.transfer);
    if (found == rogue.transfers.end()) return false;
    if (chunk.offset != found->second.received || chunk.total != found->second.total) return false;
    found->second.received += chunk.piece.size();
    return true;
  }

  // To the HELLO that came from a.
  void answer(Rogue& rogue) {
    const uint8_t kind = in_.byte();
    wire::Body body = wire::Welcome{rogue.peer.incarnation, kind % 16 < 8 ? 1 : kNeverSent};
    if (kind % 8 == 1) body = wire::Welcome{rogue.peer.incarnation + 1, 1};
    if (kind % 8 == 2) body = wire::Ping{};
    if (kind % 8 > 3) body = wire::Refuse{static_cast<RefuseReason>(in_.byte() % 16), in_.byte(), "no"};
    if (!rogue.answer(rogue.pack({0, 0, {}, std::move(body)}))) return;
    settle();
    sync(rogue);
  }

  // The next message with a byte changed on its way.
  void damage(Rogue& rogue) {
    auto [body, meaning] = body_to_say();
    Frames frames = rogue.pack({rogue.next, rogue.received, {}, std::move(body)});
    Frame& frame = frames[in_.below(frames.size())];
    std::vector<std::byte> bytes(frame.data(), frame.data() + frame.size());
    const size_t place = in_.byte() * 256u + in_.byte();
    const std::byte change{in_.byte()};
    bytes[place % bytes.size()] ^= change;
    frame = Frame::of(std::move(bytes));
    if (!rogue.send(frames)) return;
    settle();
    if (is_in_vain(rogue)) return;
    if (!is_exact_ && change != std::byte{}) return expect_damaged(rogue);
    sync(rogue);
  }

  void raw(Rogue& rogue) {
    Frames frames;
    for (size_t count = 1 + in_.below(3); count > 0; --count) {
      std::string bytes(in_.byte(), '\0');
      for (char& byte : bytes) byte = static_cast<char>(in_.byte());
      frames.push_back(Frame::copy_of(bytes.data(), bytes.size()));
    }
    if (!rogue.send(frames)) return;
    settle();
    if (is_in_vain(rogue)) return;
    sync(rogue);
  }

  // After words of unknown meaning: it is a member still, or was given up for a reason that the protocol knows. Then
  // it begins anew, which tells whether the last message counted.
  void sync(Rogue& rogue) {
    if (const Error* const error = loss_of(rogue)) {
      check(error->status() == Status::kProtocol || error->status() == Status::kDisconnected ||
            error->status() == Status::kPeerRestarted || error->status() == Status::kDenied);
      rogue.stand = Stand::kLost;
    }
    if (has_left(rogue)) rogue.stand = Stand::kLeft;
    rogue.are_transfers_known = false;
    dial(rogue);
    check(rogue.send(rogue.pack({0, 0, {}, rogue.hello(a_.id())})));
    settle();
    if (rogue.welcome() != nullptr && rogue.welcome()->next == rogue.next + 1) ++rogue.next;
    expect_hello(rogue, {});
  }

  Input& in_;
  const bool is_exact_;
  SimScheduler scheduler_{1};
  SimNetwork network_;
  const std::shared_ptr<CountedMemory> memory_ = std::make_shared<CountedMemory>();
  Node a_;
  Node b_;
  std::array<Rogue, 2> rogues_;
  std::vector<uint64_t> count_;  // what the honest two said to each other
  std::vector<uint64_t> heard_by_a_;
  std::vector<uint64_t> heard_by_b_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  Play(input).run();
  return 0;
}
