#include "transport/shm/lane_connection.h"

#include <utility>

#include "base/error.h"
#include "transport/shm/lane.h"
#include "transport/socket/descriptors.h"

namespace distag {
namespace {

// The time limit for the answer of the accepting side; after it the dial goes below.
constexpr Nanos kOfferTimeout = 2 * kSecond;

}  // namespace

//   from      event                                     to       action
//   start     no lane may be asked for, or the offer    below    dial there
//             cannot be made
//   start     the offer was sent                        offered
//   offered   it is taken                               lane     on_connected
//   offered   it is refused, hang-up, time is up        below    dial there
//   lane      the lane drops                            ended    on_dropped
//   below     the connection below drops                ended    on_dropped
//   any       close                                     ended
//
// Nothing is sent before on_connected, so nothing is sent twice when the offer fails. A callback may destroy the
// connection, which ends it.
class LaneConnection::State final : public std::enable_shared_from_this<LaneConnection::State> {
 public:
  State(std::shared_ptr<LaneContext> context, std::shared_ptr<Transport> below, const std::string& endpoint,
        ConnectionEvents events)
      : context_(std::move(context)), below_(std::move(below)), endpoint_(endpoint), events_(std::move(events)) {}

  void dial();
  bool send(const Frames& frames);
  void lend(Frames& frames, size_t ahead);
  void distrust();
  std::string found() const;
  uint64_t heard_bytes() const;
  void close();

 private:
  enum class Phase { kStart, kOffered, kLane, kBelow, kEnded };

  void offer();
  void on_answer();
  void open_lane(uint64_t worker);
  void go_below(std::string_view why, bool is_own_lack = false);
  void dial_below(std::string_view why);
  void end_offer();
  void note_failure() { context_->note_failure(endpoint_, identity_); }
  void note_end_of_lane();
  void tell_connected();
  void drop(bool refused, const Error* lack = nullptr);

  const std::shared_ptr<LaneContext> context_;
  const std::shared_ptr<Transport> below_;
  const std::string endpoint_;
  ConnectionEvents events_;
  Phase phase_ = Phase::kStart;
  bool wants_to_write_ = false;

  FileIdentity identity_;
  Nanos opened_at_ = 0;  // of a lane
  LaneSocket socket_;
  std::optional<LaneMemory> memory_;
  Loop::TimerId timer_ = 0;
  std::shared_ptr<Lane> lane_;
  std::optional<Error> lane_lack_;          // the local shortage that drops the lane
  std::unique_ptr<Connection> connection_;  // below
};

void LaneConnection::State::dial() {
  below_->check_endpoint(endpoint_);
  std::string why;
  try {
    offer();
    return;
  } catch (...) {
    why = current_error().message();
  }
  end_offer();
  dial_below(why);
}

// Throws an error that says why no lane can be had.
void LaneConnection::State::offer() {
  if (!context_->report().is_on) fail(Status::kUnsupported, "{}", context_->report().why_off);
  const std::optional<SocketAddress> address = lane_address(endpoint_);
  if (!address) fail(Status::kUnsupported, "the endpoint is no ipc:// with room for the path of a lane");
  if (!has_descriptors(kDialReserve)) fail(Status::kOutOfMemory, "too few descriptors are left for a lane");
  if (!context_->has_room()) fail(Status::kOutOfMemory, "{} lanes are open already", LaneContext::kMaxLanes);
  identity_ = identify(address->path());
  if (context_->has_failed(endpoint_, identity_)) fail(Status::kDisconnected, "lanes to it have failed twice");
  socket_ = LaneSocket::connect(*address);
  if (!socket_.is_of_same_user()) fail(Status::kDenied, "another user takes lanes at \"{}\"", address->path());
  memory_.emplace(LaneMemory::make(kLaneSizes));
  if (!socket_.send(LaneOffer{kLaneMagic, kLaneVersion, kLaneSizes, 0, context_->worker()}, memory_->fd())) {
    fail(Status::kDisconnected, "who takes lanes at \"{}\" has hung up", address->path());
  }
  memory_->close_fd();
  FdLoop& loop = context_->loop();
  timer_ = loop.start_timer(loop.now() + kOfferTimeout, [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (state && state->phase_ == Phase::kOffered) state->go_below("the offer of a lane has had no answer");
  });
  loop.watch(socket_.fd(), [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->on_answer();
  });
  phase_ = Phase::kOffered;
}

void LaneConnection::State::on_answer() {
  assert_on_loop(context_->loop());
  if (phase_ != Phase::kOffered) return;
  LaneAnswer answer;
  switch (socket_.receive(answer)) {
    case LaneSocket::Got::kNothing:
      return;
    case LaneSocket::Got::kEnd:
      return go_below("the other side has hung up on the offer of a lane");
    case LaneSocket::Got::kPacket:
      break;
  }
  if (answer.magic != kLaneMagic || answer.version != kLaneVersion || answer.is_taken != 1) {
    return go_below("the other side has refused the offer of a lane");
  }
  try {
    open_lane(answer.worker);
  } catch (...) {
    const Error error = current_error();
    return go_below(error.message(), error.status() == Status::kOutOfMemory);
  }
  tell_connected();
}

void LaneConnection::State::open_lane(uint64_t worker) {
  LaneEvents events;
  events.on_message = [weak = weak_from_this()](Frames frames) {
    const auto state = weak.lock();
    if (state && state->events_.on_message) state->events_.on_message(std::move(frames));
  };
  events.on_writable = [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (state && state->events_.on_writable) state->events_.on_writable();
  };
  events.on_lack = [weak = weak_from_this()](const Error& why) {
    if (const auto state = weak.lock()) state->lane_lack_ = why;
  };
  events.on_dropped = [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (!state) return;
    const std::optional<Error> lack = std::exchange(state->lane_lack_, std::nullopt);
    if (!lack) state->note_end_of_lane();
    state->drop(false, lack ? &*lack : nullptr);
  };
  FdLoop& loop = context_->loop();
  loop.unwatch(socket_.fd());
  auto lane =
      std::make_shared<Lane>(context_, *std::move(memory_), std::move(socket_), true, std::move(events), worker);
  memory_.reset();
  lane->open();
  loop.cancel_timer(std::exchange(timer_, 0));
  lane_ = std::move(lane);
  opened_at_ = loop.now();
  phase_ = Phase::kLane;
  context_->note_way(endpoint_, "lane");
}

// A lane that has served for long shows that lanes to this endpoint work.
void LaneConnection::State::note_end_of_lane() {
  constexpr Nanos kLong = 60 * kSecond;
  if (context_->loop().now() - opened_at_ >= kLong) {
    context_->forget_failures(endpoint_);
  } else {
    note_failure();
  }
}

// After the offer: counts as a failure of lanes to this endpoint, unless this worker lacked a resource.
void LaneConnection::State::go_below(std::string_view why, bool is_own_lack) {
  if (!is_own_lack) note_failure();
  end_offer();
  try {
    dial_below(why);
  } catch (...) {
    const Error error = current_error();
    drop(false, error.status() == Status::kOutOfMemory ? &error : nullptr);
  }
}

void LaneConnection::State::dial_below(std::string_view why) {
  context_->note_way(endpoint_, why);
  phase_ = Phase::kBelow;
  ConnectionEvents events;
  events.on_connected = [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->tell_connected();
  };
  events.on_message = [weak = weak_from_this()](Frames frames) {
    const auto state = weak.lock();
    if (state && state->events_.on_message) state->events_.on_message(std::move(frames));
  };
  events.on_writable = [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (state && state->events_.on_writable) state->events_.on_writable();
  };
  events.on_denied = [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (state && state->events_.on_denied) state->events_.on_denied();
  };
  events.on_lack = [weak = weak_from_this()](const Error& lack) {
    if (const auto state = weak.lock()) state->drop(false, &lack);
  };
  events.on_dropped = [weak = weak_from_this()](bool refused) {
    if (const auto state = weak.lock()) state->drop(refused);
  };
  events.is_redial = events_.is_redial;
  connection_ = below_->dial(endpoint_, std::move(events));
}

void LaneConnection::State::tell_connected() {
  const auto held = shared_from_this();
  if (events_.on_connected) events_.on_connected();
  if (phase_ == Phase::kEnded || !std::exchange(wants_to_write_, false)) return;
  if (events_.on_writable) events_.on_writable();
}

void LaneConnection::State::end_offer() {
  context_->loop().cancel_timer(std::exchange(timer_, 0));
  if (socket_.fd() >= 0) context_->loop().unwatch(socket_.fd());
  socket_ = LaneSocket();
  memory_.reset();
}

bool LaneConnection::State::send(const Frames& frames) {
  assert_on_loop(context_->loop());
  if (phase_ == Phase::kLane) return lane_->send(frames);
  if (phase_ == Phase::kBelow && connection_ != nullptr) return connection_->send(frames);
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  wants_to_write_ = true;
  return false;
}

void LaneConnection::State::lend(Frames& frames, size_t ahead) {
  assert_on_loop(context_->loop());
  if (phase_ == Phase::kLane) lane_->lend(frames, ahead);
}

void LaneConnection::State::distrust() {
  assert_on_loop(context_->loop());
  if (phase_ == Phase::kLane) note_failure();
}

std::string LaneConnection::State::found() const {
  assert_on_loop(context_->loop());
  return connection_ == nullptr ? std::string() : connection_->found();
}

uint64_t LaneConnection::State::heard_bytes() const {
  assert_on_loop(context_->loop());
  return connection_ == nullptr ? 0 : connection_->heard_bytes();
}

void LaneConnection::State::close() {
  phase_ = Phase::kEnded;
  end_offer();
  if (lane_) lane_->close();
  lane_.reset();
  connection_.reset();
}

void LaneConnection::State::drop(bool refused, const Error* lack) {
  if (phase_ == Phase::kEnded) return;
  phase_ = Phase::kEnded;
  if (lack != nullptr && events_.on_lack) return events_.on_lack(*lack);
  if (events_.on_dropped) events_.on_dropped(refused);
}

LaneConnection::LaneConnection(std::shared_ptr<LaneContext> context, std::shared_ptr<Transport> below,
                               const std::string& endpoint, ConnectionEvents events)
    : state_(std::make_shared<State>(std::move(context), std::move(below), endpoint, std::move(events))) {
  state_->dial();
}

LaneConnection::~LaneConnection() { state_->close(); }

bool LaneConnection::send(const Frames& frames) { return state_->send(frames); }

void LaneConnection::lend(Frames& frames, size_t ahead) { state_->lend(frames, ahead); }

void LaneConnection::distrust() { state_->distrust(); }

std::string LaneConnection::found() const { return state_->found(); }

uint64_t LaneConnection::heard_bytes() const { return state_->heard_bytes(); }

}  // namespace distag
