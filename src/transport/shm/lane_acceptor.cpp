#include "transport/shm/lane_acceptor.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/each_step.h"
#include "base/error.h"
#include "transport/shm/lane.h"
#include "transport/socket/descriptors.h"

namespace distag {
namespace {

constexpr int kAcceptsPerTurn = 16;
// The most diallers that have not made their offer yet; further ones are hung up on.
constexpr size_t kMaxWaiting = 64;
constexpr Nanos kLongestOffer = 2 * kSecond;
// The pause in accepting after descriptors ran short.
constexpr Nanos kPause = 20 * kMillisecond;
}  // namespace

// An accepted dialler makes an offer in time, which is taken or refused; then it is a lane, or is hung up on.
class LaneAcceptor::State final : public std::enable_shared_from_this<LaneAcceptor::State> {
 public:
  State(std::shared_ptr<LaneContext> context, std::unique_ptr<LaneListener> listener, AcceptorEvents events)
      : context_(std::move(context)), events_(std::move(events)), listener_(std::move(listener)) {}

  void begin(Transport& below, const std::string& address);
  const std::string& endpoint() const { return acceptor_->endpoint(); }
  bool reply(const ConnectionToken& to, Frames frames);
  bool close_some();
  void close();

 private:
  using Id = uint64_t;
  struct Waiting {
    LaneSocket socket;
    Loop::TimerId timer = 0;
  };

  static ConnectionToken token_of(Id id);
  void watch();
  void accept_waiting();
  void pause(int error);
  void watch_again();
  void begin(LaneSocket socket);
  void close_listener();
  void on_offer(Id id);
  void open(Id id, const LaneOffer& offer, int memory_fd);
  void hang_up(Id id);

  const std::shared_ptr<LaneContext> context_;
  const AcceptorEvents events_;
  std::unique_ptr<LaneListener> listener_;
  std::unique_ptr<Acceptor> acceptor_;
  Loop::TimerId pause_timer_ = 0;
  std::unordered_map<Id, Waiting> waiting_;
  std::unordered_map<Id, std::shared_ptr<Lane>> lanes_;
  Id last_id_ = 0;
};

void LaneAcceptor::State::begin(Transport& below, const std::string& address) {
  AcceptorEvents events;
  events.on_message = [weak = weak_from_this()](const ConnectionToken& from, Frames frames) {
    if (const auto state = weak.lock()) state->events_.on_message(from, std::move(frames));
  };
  events.on_part = [weak = weak_from_this()](const ConnectionToken& from) {
    const auto state = weak.lock();
    if (state && state->events_.on_part) state->events_.on_part(from);
  };
  events.on_denied = [weak = weak_from_this()](const std::string& why) {
    const auto state = weak.lock();
    if (state && state->events_.on_denied) state->events_.on_denied(why);
  };
  events.on_lack = [weak = weak_from_this()](const Error& why) {
    const auto state = weak.lock();
    if (state && state->events_.on_lack) state->events_.on_lack(why);
  };
  acceptor_ = below.listen(address, std::move(events));
  if (listener_) watch();
}

void LaneAcceptor::State::watch() {
  context_->loop().watch(listener_->fd(), [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->accept_waiting();
  });
}

void LaneAcceptor::State::accept_waiting() {
  assert_on_loop(context_->loop());
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    std::optional<LaneSocket> socket = listener_->accept();
    if (socket) {
      begin(*std::move(socket));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != ECONNABORTED) {
      return pause(errno);
    }
  }
}

// A waiting dialler either times out and dials below, or is accepted once descriptors are free again.
void LaneAcceptor::State::pause(int error) {
  FdLoop& loop = context_->loop();
  try {
    pause_timer_ = loop.start_timer(loop.now() + kPause, [weak = weak_from_this()] {
      if (const auto state = weak.lock()) state->watch_again();
    });
  } catch (const std::bad_alloc&) {
    return;  // the listener is still watched, and accepting is tried again
  }
  loop.unwatch(listener_->fd());
  const std::optional<Error> lack = lack_to_accept(error);
  EachStep each;  // without memory on_lack is called another time
  each([&] {
    if (lack && events_.on_lack) events_.on_lack(*lack);
  });
}

// A listener that cannot be watched is closed: then diallers go below at once.
void LaneAcceptor::State::watch_again() {
  try {
    watch();
  } catch (...) {
    listener_.reset();
  }
}

// A refused dialler dials the transport below.
void LaneAcceptor::State::begin(LaneSocket socket) {
  const bool is_welcome = socket.is_of_same_user() && has_descriptors(kDialReserve) && context_->has_room() &&
                          waiting_.size() < kMaxWaiting;
  if (!is_welcome) {
    ++context_->report().refused;
    return;
  }
  const Id id = ++last_id_;
  FdLoop& loop = context_->loop();
  try {
    Waiting& waiting = waiting_[id];
    waiting.socket = std::move(socket);
    waiting.timer = loop.start_timer(loop.now() + kLongestOffer, [weak = weak_from_this(), id] {
      if (const auto state = weak.lock()) state->hang_up(id);
    });
    loop.watch(waiting.socket.fd(), [weak = weak_from_this(), id] {
      if (const auto state = weak.lock()) state->on_offer(id);
    });
  } catch (...) {
    hang_up(id);
  }
}

void LaneAcceptor::State::on_offer(Id id) {
  assert_on_loop(context_->loop());
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  LaneOffer offer;
  int memory_fd = -1;
  switch (found->second.socket.receive(offer, memory_fd)) {
    case LaneSocket::Got::kNothing:
      return;
    case LaneSocket::Got::kEnd:
      return hang_up(id);
    case LaneSocket::Got::kPacket:
      break;
  }
  try {
    open(id, offer, memory_fd);
  } catch (...) {
    hang_up(id);
  }
}

void LaneAcceptor::State::open(Id id, const LaneOffer& offer, int memory_fd) {
  LaneMemory memory = LaneMemory::adopt(memory_fd, offer.sizes);
  Waiting& waiting = waiting_.at(id);
  if (offer.magic != kLaneMagic || offer.version != kLaneVersion || !context_->has_room()) return hang_up(id);
  LaneEvents events;
  events.on_message = [weak = weak_from_this(), token = token_of(id)](Frames frames) {
    if (const auto state = weak.lock()) state->events_.on_message(token, std::move(frames));
  };
  events.on_dropped = [weak = weak_from_this(), id] {
    if (const auto state = weak.lock()) state->lanes_.erase(id);
  };
  events.on_lack = [weak = weak_from_this()](const Error& why) {
    const auto state = weak.lock();
    if (state && state->events_.on_lack) state->events_.on_lack(why);
  };
  if (!waiting.socket.send(LaneAnswer{kLaneMagic, kLaneVersion, 1, context_->worker()})) return hang_up(id);
  FdLoop& loop = context_->loop();
  loop.cancel_timer(std::exchange(waiting.timer, 0));
  loop.unwatch(waiting.socket.fd());
  auto lane = std::make_shared<Lane>(context_, std::move(memory), std::move(waiting.socket), false, std::move(events),
                                     offer.worker);
  waiting_.erase(id);
  const auto place = lanes_.emplace(id, lane).first;
  try {
    lane->open();
  } catch (...) {
    lanes_.erase(place);
    throw;
  }
}

void LaneAcceptor::State::hang_up(Id id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  ++context_->report().refused;
  context_->loop().cancel_timer(found->second.timer);
  if (found->second.socket.fd() >= 0) context_->loop().unwatch(found->second.socket.fd());
  waiting_.erase(found);
}

bool LaneAcceptor::State::reply(const ConnectionToken& to, Frames frames) {
  assert_on_loop(context_->loop());
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  Id id = 0;
  if (to.size() != sizeof id + 1) return acceptor_->reply(to, std::move(frames));
  std::memcpy(&id, to.data() + 1, sizeof id);
  const auto found = lanes_.find(id);
  if (found == lanes_.end()) return false;
  const std::shared_ptr<Lane> lane = found->second;
  return lane->send(frames);
}

void LaneAcceptor::State::close_listener() {
  context_->loop().cancel_timer(pause_timer_);
  if (listener_) context_->loop().unwatch(listener_->fd());
  listener_.reset();
}

bool LaneAcceptor::State::close_some() {
  assert_on_loop(context_->loop());
  close_listener();
  for (size_t i = 0; i < LaneContext::kEndsATurn && !lanes_.empty(); ++i) {
    lanes_.begin()->second->close();
    lanes_.erase(lanes_.begin());
  }
  return !lanes_.empty();
}

void LaneAcceptor::State::close() {
  close_listener();
  while (!waiting_.empty()) hang_up(waiting_.begin()->first);
  for (const auto& [id, lane] : lanes_) lane->close();
  lanes_.clear();
  acceptor_.reset();
}

// A byte longer than tokens of the transport below.
ConnectionToken LaneAcceptor::State::token_of(Id id) {
  ConnectionToken token(sizeof id + 1);
  std::memcpy(token.data() + 1, &id, sizeof id);
  return token;
}

LaneAcceptor::LaneAcceptor(std::shared_ptr<LaneContext> context, std::unique_ptr<LaneListener> listener,
                           Transport& below, const std::string& address, AcceptorEvents events)
    : state_(std::make_shared<State>(std::move(context), std::move(listener), std::move(events))) {
  state_->begin(below, address);
}

LaneAcceptor::~LaneAcceptor() { state_->close(); }

const std::string& LaneAcceptor::endpoint() const { return state_->endpoint(); }

bool LaneAcceptor::reply(const ConnectionToken& to, Frames frames) { return state_->reply(to, std::move(frames)); }

bool LaneAcceptor::close_some() { return state_->close_some(); }

}  // namespace distag
