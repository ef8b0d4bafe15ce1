// The transport of a worker, with a fault point at each message that goes out or comes in.
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "faults/fault_points.h"
#include "message_generated.h"
#include "worker/fault_points.h"

namespace distag {
namespace {

using faults::Way;

constexpr Nanos kPause = 5 * kMillisecond;  // between messages of a slow link

// The name that schemas/message.fbs gives it. Copied to where a FlatBuffer may be read.
std::string kind_of(const Frames& frames) {
  const Frame& header = frames.front();
  std::vector<uint64_t> aligned(header.size() / 8 + 1);
  std::copy(header.data(), header.data() + header.size(), reinterpret_cast<std::byte*>(aligned.data()));
  return protocol::EnumNameBody(protocol::GetSizePrefixedMessage(aligned.data())->body_type());
}

// Whether the message is to be taken.
bool arrive(const Frames& frames) {
  const std::string kind = kind_of(frames);
  faults::fault_points().reach(kind, Way::kArrived);
  return !faults::fault_points().loses(kind, Way::kArrived);
}

// The message with another last byte, which is one of its payload.
Frames damaged(const Frames& frames) {
  Frames changed = frames;
  const Frame& last = frames.back();
  std::vector<std::byte> bytes(last.data(), last.data() + last.size());
  bytes.back() ^= std::byte{1};
  changed.back() = Frame::of(std::move(bytes));
  return changed;
}

// The answer of `hand_on`; of a message that vanishes, that it was sent.
template <typename HandOn>
bool send_by(const Frames& frames, const HandOn& hand_on) {
  const std::string kind = kind_of(frames);
  if (faults::fault_points().loses(kind, Way::kSent)) return true;
  if (!hand_on()) return false;
  faults::fault_points().reach(kind, Way::kSent);
  return true;
}

// The messages that come in, in order, each as soon as a slow link lets it. On the loop.
class Arrivals : public std::enable_shared_from_this<Arrivals> {
 public:
  explicit Arrivals(Loop& loop) : loop_(loop) {}

  // Drops the message once `receiver` has no owner any more.
  void take(const std::shared_ptr<void>& receiver, std::function<void()> deliver) {
    if (waiting_.empty() && !faults::fault_points().is_slow()) return deliver();
    waiting_.push_back({receiver, std::move(deliver)});
    if (waiting_.size() == 1) start_timer();
  }

 private:
  struct Arrival {
    std::weak_ptr<void> receiver;
    std::function<void()> deliver;
  };

  void start_timer() {
    loop_.start_timer(loop_.now() + kPause, [self = shared_from_this()] { self->deliver_next(); });
  }
  void deliver_next() {
    const Arrival next = std::move(waiting_.front());
    waiting_.pop_front();
    if (!waiting_.empty()) start_timer();
    if (next.receiver.lock()) next.deliver();
  }

  Loop& loop_;
  std::deque<Arrival> waiting_;
};

class FaultyAcceptor final : public Acceptor {
 public:
  explicit FaultyAcceptor(std::shared_ptr<void> alive) : alive_(std::move(alive)) {}
  void set(std::unique_ptr<Acceptor> below) { below_ = std::move(below); }

  const std::string& endpoint() const override { return below_->endpoint(); }
  bool reply(const ConnectionToken& to, Frames frames) override {
    return send_by(frames, [&] { return below_->reply(to, frames); });
  }
  std::string name_of(const ConnectionToken& from) const override { return below_->name_of(from); }
  bool close_some() override { return below_->close_some(); }

 private:
  const std::shared_ptr<void> alive_;
  std::unique_ptr<Acceptor> below_;
};

class FaultyConnection final : public Connection {
 public:
  explicit FaultyConnection(std::shared_ptr<void> alive) : alive_(std::move(alive)) {}
  void set(std::unique_ptr<Connection> below) { below_ = std::move(below); }

  // A message that the transport has no room for comes again.
  bool send(const Frames& frames) override {
    return send_by(frames, [&] {
      const std::string kind = kind_of(frames);
      const bool is_damaged = faults::fault_points().takes_damage(kind);
      if (below_->send(is_damaged ? damaged(frames) : frames)) return true;
      if (is_damaged) faults::fault_points().damage(kind);
      return false;
    });
  }
  void lend(Frames& frames, size_t ahead) override { below_->lend(frames, ahead); }
  void distrust() override { below_->distrust(); }
  std::string found() const override { return below_->found(); }
  uint64_t heard_bytes() const override { return below_->heard_bytes(); }

 private:
  const std::shared_ptr<void> alive_;
  std::unique_ptr<Connection> below_;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> below, Loop& loop)
      : below_(std::move(below)), arrivals_(std::make_shared<Arrivals>(loop)) {}

  std::unique_ptr<Acceptor> listen(const std::string& address, AcceptorEvents events) override {
    const auto alive = std::make_shared<bool>();
    auto acceptor = std::make_unique<FaultyAcceptor>(alive);
    AcceptorEvents watched = events;
    watched.on_message = [arrivals = arrivals_, receiver = std::weak_ptr<void>(alive), taker = events.on_message](
                             const ConnectionToken& from, Frames frames) {
      if (!arrive(frames)) return;
      arrivals->take(receiver.lock(), [taker, from, kept = std::move(frames)] { taker(from, kept); });
    };
    watched.on_part = [taker = events.on_part](const ConnectionToken& from) {
      if (taker && !faults::fault_points().is_losing(Way::kArrived)) taker(from);
    };
    acceptor->set(below_->listen(address, std::move(watched)));
    return acceptor;
  }
  std::unique_ptr<Connection> dial(const std::string& endpoint, ConnectionEvents events) override {
    const auto alive = std::make_shared<bool>();
    auto connection = std::make_unique<FaultyConnection>(alive);
    connection->set(below_->dial(endpoint, watch(std::move(events), alive)));
    return connection;
  }
  std::unique_ptr<Connection> dial_worker(const std::string& name, const std::string& endpoint,
                                          ConnectionEvents events) override {
    const auto alive = std::make_shared<bool>();
    auto connection = std::make_unique<FaultyConnection>(alive);
    connection->set(below_->dial_worker(name, endpoint, watch(std::move(events), alive)));
    return connection;
  }
  std::string explain_denial() const override { return below_->explain_denial(); }
  void check_endpoint(const std::string& endpoint) const override { below_->check_endpoint(endpoint); }
  std::string private_address() override { return below_->private_address(); }
  void let_last_words_go() override { below_->let_last_words_go(); }
  bool is_exact() const override { return below_->is_exact(); }
  bool reports_every_loss() const override { return below_->reports_every_loss(); }
  LaneReport lane_report() const override { return below_->lane_report(); }
  SocketReport socket_report() const override { return below_->socket_report(); }
  void check_descriptors(size_t members) const override { below_->check_descriptors(members); }

 private:
  // The end of a connection comes after the messages that came before it.
  ConnectionEvents watch(ConnectionEvents events, const std::weak_ptr<void>& receiver) {
    ConnectionEvents watched = events;
    watched.on_message = [arrivals = arrivals_, receiver, taker = events.on_message](Frames frames) {
      if (!arrive(frames)) return;
      arrivals->take(receiver.lock(), [taker, kept = std::move(frames)] { taker(kept); });
    };
    watched.on_dropped = [arrivals = arrivals_, receiver, taker = events.on_dropped](bool refused) {
      arrivals->take(receiver.lock(), [taker, refused] { taker(refused); });
    };
    return watched;
  }

  const std::unique_ptr<Transport> below_;
  const std::shared_ptr<Arrivals> arrivals_;
};

}  // namespace

std::unique_ptr<Transport> with_fault_points(std::unique_ptr<Transport> transport, FdLoop& loop) {
  return std::make_unique<FaultyTransport>(std::move(transport), loop);
}

}  // namespace distag
