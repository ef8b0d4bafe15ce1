#include "session/self_stream.h"

#include <new>
#include <utility>

namespace distag {
namespace {

constexpr Nanos kAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

SelfStream::SelfStream(StreamShared& shared, SessionLog& log, SessionEvents& events, Owner& owner)
    : shared_(shared),
      log_(log),
      events_(events),
      owner_(owner),
      inbox_(shared.loop, shared.config.decoder, shared.config.limits, *this) {}

void SelfStream::send(wire::Body body, SendOptions options) {
  assert_on_loop(shared_.loop);
  wire::check(body, shared_.config.limits);
  std::list<Waiting> place(1);
  wire::Message& message = place.front().message;
  message = {0, 0, {}, std::move(body)};
  if (options.on_number) options.on_number(message);
  place.front().on_acknowledged = std::move(options.on_acknowledged);
  waiting_.splice(waiting_.end(), place);
  number_waiting(true);
}

void SelfStream::drain() {
  assert_on_loop(shared_.loop);
  inbox_.drain();
}

// `is_sent_now`: the last message is being sent now; its sender gets the error if it cannot travel.
void SelfStream::number_waiting(bool is_sent_now) {
  try {
    while (!waiting_.empty()) {
      number(waiting_.front());
      waiting_.pop_front();
    }
  } catch (const std::bad_alloc&) {
    if (std::exchange(tries_again_, true)) return;
    Task again = [this, held = again_, session = std::weak_ptr<char>(shared_.alive)] {
      if (session.expired()) return;
      tries_again_ = false;
      number_waiting(false);
    };
    shared_.loop.start_timer(*again_, shared_.loop.now() + kAgain, std::move(again));
  } catch (...) {
    // on_number has made the message one that cannot travel; no other message depends on it.
    const bool is_of_sender = is_sent_now && waiting_.size() == 1;
    waiting_.pop_front();
    if (is_of_sender) throw;
    number_waiting(is_sent_now);
  }
}

// The number is taken after everything that needs memory: a failure before may be tried again.
void SelfStream::number(Waiting& waiting) {
  wire::Message& message = waiting.message;
  message.number = last_number_ + 1;
  message.ack = last_arrived_;
  auto travelling = std::make_shared<Travelling>();
  travelling->encoded = wire::encode(message, shared_.config.limits);
  travelling->bytes = travelling->encoded.header.size() + travelling->encoded.payload_bytes;
  travelling->on_acknowledged = std::move(waiting.on_acknowledged);
  last_number_ = message.number;
  shared_.stats.bytes_sent += travelling->bytes;
  shared_.stats.bytes_in_flight += travelling->bytes;
  TaskPlace& place = travelling->post;
  shared_.loop.post_or_drop(place,
                            [this, session = std::weak_ptr<char>(shared_.alive), travelling = std::move(travelling)] {
                              if (!session.expired()) arrive(*travelling);
                            });
}

// The message is acknowledged in any case, as by a peer.
void SelfStream::arrive(Travelling& travelling) {
  shared_.stats.bytes_received += travelling.bytes;
  shared_.stats.bytes_in_flight -= travelling.bytes;
  ++last_arrived_;
  receive(std::exchange(travelling.encoded, {}), std::move(travelling.place));
  if (travelling.on_acknowledged) travelling.on_acknowledged();
  owner_.on_progress();
}

void SelfStream::receive(wire::Encoded encoded, Inbox::Place place) {
  try {
    const wire::Arrival arrival(encoded.header, shared_.config.limits, shared_.header_room);
    bool waits = !inbox_.is_empty();
    const bool takes_long = arrival.takes_long(encoded.payload);
    Inbox::Decoded decoded;
    if (!takes_long && !waits) {
      decoded = Inbox::decode(arrival, encoded.payload, std::nullopt);
      waits = Inbox::lacks_memory(decoded);
    }
    if (takes_long || waits) {
      inbox_.add(std::move(place), {std::move(encoded.header), std::move(encoded.payload), {}, takes_long, {}});
      return inbox_.drain();
    }
    encoded.payload.clear();  // only the message holds them then
    if (!on_decoded(decoded)) inbox_.put_back(std::move(place), std::move(decoded));
  } catch (...) {
    log_.note_failure(shared_.config.self, current_error());
  }
}

bool SelfStream::on_decoded(Inbox::Decoded& decoded) {
  assert_on_loop(shared_.loop);
  if (shared_.alive == nullptr) return true;
  const Peer& self = shared_.config.self;
  try {
    if (decoded.failure) std::rethrow_exception(decoded.failure);
    if (decoded.shortage) {
      events_.on_unstored(self, decoded.message, *decoded.shortage);
    } else {
      shared_.count(events_.on_message(self, decoded.message));
    }
  } catch (...) {
    const Error error = current_error();
    if (!decoded.failure && error.status() == Status::kOutOfMemory) return false;
    log_.note_failure(self, error);
  }
  return true;
}

}  // namespace distag
