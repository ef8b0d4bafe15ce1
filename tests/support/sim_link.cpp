#include "support/sim_link.h"

#include <algorithm>
#include <new>
#include <utility>

namespace distag::sim {
namespace {

constexpr Nanos kRetryParted = 5 * kMillisecond;
// The interval at which the acceptor hears of a message that is not whole.
constexpr Nanos kPartEvery = 100 * kMillisecond;
constexpr Nanos kDialTimeout = 2 * kSecond;
constexpr Nanos kAcceptAgain = 20 * kMillisecond;
constexpr int kHandshakeWords = 3;
constexpr uint64_t kWordBytes = 100;

ConnectionToken make_token(uint64_t id) {
  ConnectionToken token;
  for (int shift = 0; shift < 64; shift += 8) token.push_back(static_cast<std::byte>((id >> shift) & 0xFF));
  return token;
}

}  // namespace

SimLink::SimLink(SimNetwork& network, SimTransport& dialer, ConnectionEvents events, uint64_t id)
    : network_(network),
      dialer_(&dialer),
      dialer_loop_(dialer.loop_),
      dialer_host_(dialer.host_),
      key_name_(dialer.key_name),
      events_(std::make_shared<ConnectionEvents>(std::move(events))),
      token_(make_token(id)) {}

void SimLink::dial(const std::string& endpoint) {
  const MemoryScope own(nullptr);
  ++network_.traffic_.dials;
  SimScheduler& scheduler = network_.scheduler_;
  dial_ends_ = scheduler.now() + kDialTimeout;
  establish_at(scheduler.now() + network_.delay(), endpoint);
}

void SimLink::establish_at(Nanos when, const std::string& endpoint) {
  network_.scheduler_.at(when, [weak = weak_from_this(), endpoint] {
    if (const auto link = weak.lock()) link->establish(endpoint);
  });
}

void SimLink::establish(const std::string& endpoint) {
  if (dropped_ || dialer_ == nullptr) return;
  SimScheduler& scheduler = network_.scheduler_;
  if (network_.without_ports_.contains(dialer_host_)) return end_without_port();
  const auto found = network_.acceptors_.find(endpoint);
  if (found == network_.acceptors_.end()) return drop(true);
  acceptor_host_ = found->second->transport().host_;
  if (is_parted()) {
    scheduler.at(scheduler.now() + kDialTimeout, [weak = weak_from_this()] {
      if (const auto link = weak.lock()) link->drop(false);
    });
    return;
  }
  if (network_.is_deaf(acceptor_host_)) {
    found->second->tell_lack();
    return scheduler.now() < dial_ends_ ? establish_at(scheduler.now() + kAcceptAgain, endpoint) : drop(false);
  }
  if (scheduler.chance(network_.faults.fail_dial)) return drop(false);
  if (network_.drips_.contains(acceptor_host_)) return drip(network_.drips_.at(acceptor_host_));
  shake(network_.faults.handshake_work == 0 ? 0 : kHandshakeWords, endpoint);
}

// The work of a handshake is lost when the dialler gives it up.
void SimLink::shake(int words, const std::string& endpoint) {
  if (dropped_ || dialer_ == nullptr) return;
  if (words == 0) return connect(endpoint);
  SimScheduler& scheduler = network_.scheduler_;
  const auto at = [this, &scheduler](Nanos when, auto step) {
    scheduler.at(when, [weak = weak_from_this(), step] {
      const auto link = weak.lock();
      if (link && !link->dropped_ && link->dialer_ != nullptr) step(*link);
    });
  };
  if (is_parted()) {
    return at(scheduler.now() + kRetryParted, [words, endpoint](SimLink& link) { link.shake(words, endpoint); });
  }
  at(network_.work_at(acceptor_host_) + network_.delay(), [words, endpoint, at](SimLink& link) {
    link.heard_bytes_ += kWordBytes;
    at(link.network_.work_at(link.dialer_host_), [words, endpoint](SimLink& same) { same.shake(words - 1, endpoint); });
  });
}

void SimLink::drip(Nanos every) {
  if (every == 0) return;
  network_.scheduler_.at(network_.scheduler_.now() + every, [weak = weak_from_this(), every] {
    const auto link = weak.lock();
    if (!link || link->dropped_ || link->dialer_ == nullptr) return;
    ++link->heard_bytes_;
    link->drip(every);
  });
}

void SimLink::connect(const std::string& endpoint) {
  const auto found = network_.acceptors_.find(endpoint);
  if (found == network_.acceptors_.end()) return drop(true);
  acceptor_ = found->second;
  acceptor_->accept(shared_from_this());
  connected_ = true;
  dialer_loop_.post_or_drop([link = shared_from_this()] {
    if (link->dialer_ == nullptr || link->told_) return;
    if (link->events_->on_connected) link->events_->on_connected();
    link->wake_dialer();
  });
}

// Reports the lack as the last event of the link.
void SimLink::end_without_port() {
  dropped_ = true;
  dialer_loop_.post_or_drop([link = shared_from_this()] {
    if (link->dialer_ == nullptr || std::exchange(link->told_, true)) return;
    const Error lack(Status::kOutOfMemory, "no local port is free (net.ipv4.ip_local_port_range)");
    if (link->events_->on_lack) return link->events_->on_lack(lack);
    if (link->events_->on_dropped) link->events_->on_dropped(false);
  });
}

bool SimLink::send(const Frames& frames) {
  const MemoryScope own(nullptr);
  if (dropped_) return false;
  if (network_.without_memory_.contains(dialer_host_)) throw std::bad_alloc();
  const bool refuse = !connected_ || forward_.queue.size() >= network_.faults.capacity;
  SimScheduler& scheduler = network_.scheduler_;
  if (refuse || scheduler.chance(network_.faults.would_block)) {
    starved_ = true;
    if (!refuse) {
      scheduler.at(scheduler.now() + network_.delay(), [weak = weak_from_this()] {
        if (const auto link = weak.lock()) link->wake_dialer();
      });
    }
    return false;
  }
  put(forward_, frames, dialer_host_, acceptor_host_);
  return true;
}

bool SimLink::reply(Frames frames) {
  const MemoryScope own(nullptr);
  if (dropped_ || dialer_ == nullptr || backward_.queue.size() >= network_.faults.capacity) return false;
  put(backward_, std::move(frames), acceptor_host_, dialer_host_);
  return true;
}

void SimLink::put(Direction& direction, Frames frames, const std::string& from, const std::string& to) {
  if (network_.tap_) network_.tap_(from, to, frames);
  ++network_.traffic_.messages;
  size_t bytes = 0;
  for (const Frame& frame : frames) bytes += frame.size();
  network_.traffic_.bytes += bytes;
  SimScheduler& scheduler = network_.scheduler_;
  if (dialer_ != nullptr && !dialer_->is_exact()) {
    if (scheduler.chance(network_.faults.vanish)) return;
    if (scheduler.chance(network_.faults.flip)) network_.damage(frames);
  }
  for (size_t i = 1; network_.faults.lose > 0 && i < frames.size(); ++i) {
    if (scheduler.chance(network_.faults.lose)) frames[i] = Frame::lost(frames[i].size());
  }
  direction.queue.push_back(std::move(frames));
  const Nanos delay = network_.delay() + static_cast<Nanos>(bytes) * network_.faults.delay_per_kib / 1024;
  direction.last = std::max(direction.last, scheduler.now() + delay);
  for (Nanos part = scheduler.now() + kPartEvery; part < direction.last; part += kPartEvery) {
    scheduler.at(part, [weak = weak_from_this(), &direction] {
      if (const auto link = weak.lock()) link->tell_of_part(direction);
    });
  }
  scheduler.at(direction.last, [weak = weak_from_this(), &direction] {
    if (const auto link = weak.lock()) link->deliver(direction);
  });
  if (!scheduler.chance(network_.faults.drop)) return;
  scheduler.at(scheduler.now() + network_.delay(), [weak = weak_from_this()] {
    if (const auto link = weak.lock()) link->drop(false);
  });
}

void SimLink::deliver(Direction& direction) {
  if (direction.queue.empty()) return;
  SimScheduler& scheduler = network_.scheduler_;
  if (!dropped_ && is_parted(direction)) {
    direction.last = std::max(direction.last, scheduler.now() + kRetryParted);
    scheduler.at(scheduler.now() + kRetryParted, [weak = weak_from_this(), &direction] {
      if (const auto link = weak.lock()) link->deliver(direction);
    });
    return;
  }
  Frames frames = std::move(direction.queue.front());
  direction.queue.pop_front();
  hand_over(direction, std::move(frames));
  if (starved_ && &direction == &forward_) wake_dialer();
}

void SimLink::tell_of_part(const Direction& direction) {
  if (&direction != &forward_ || dropped_ || is_parted(direction)) return;
  if (acceptor_ == nullptr || acceptor_->transport().dead_) return;
  acceptor_->transport().loop_.post_or_drop([link = shared_from_this()] {
    if (link->acceptor_ == nullptr) return;
    const std::shared_ptr<AcceptorEvents> events = link->acceptor_->events();
    if (events->on_part) events->on_part(link->token_);
  });
}

void SimLink::hand_over(Direction& direction, Frames frames) {
  if (&direction == &forward_) {
    if (acceptor_ == nullptr || acceptor_->transport().dead_) return;
    acceptor_->transport().loop_.post_or_drop([link = shared_from_this(), frames = std::move(frames)]() mutable {
      if (link->acceptor_ == nullptr) return;
      const std::shared_ptr<AcceptorEvents> events = link->acceptor_->events();
      events->on_message(link->token_, std::move(frames));
    });
    return;
  }
  if (dialer_ == nullptr || dialer_->dead_) return;
  dialer_loop_.post_or_drop([link = shared_from_this(), frames = std::move(frames)]() mutable {
    if (link->dialer_ == nullptr || link->told_) return;
    if (link->events_->on_message) link->events_->on_message(std::move(frames));
  });
}

void SimLink::wake_dialer() {
  if (!starved_ || !connected_ || dialer_ == nullptr || dialer_->dead_) return;
  starved_ = false;
  dialer_loop_.post_or_drop([link = shared_from_this()] {
    if (link->dialer_ == nullptr || link->told_ || link->dropped_) return;
    if (link->events_->on_writable) link->events_->on_writable();
  });
}

void SimLink::shorten(Direction& direction) {
  const size_t kept = is_parted() ? 0 : network_.scheduler_.below(direction.queue.size() + 1);
  direction.queue.resize(kept);
}

void SimLink::drop(bool refused) {
  if (std::exchange(dropped_, true)) return;
  ++network_.traffic_.drops;
  shorten(forward_);
  shorten(backward_);
  if (dialer_ == nullptr || dialer_->dead_) return;
  SimScheduler& scheduler = network_.scheduler_;
  scheduler.at(std::max(backward_.last, scheduler.now() + network_.delay()), [link = shared_from_this(), refused] {
    if (link->dialer_ == nullptr || link->dialer_->dead_) return;
    link->dialer_loop_.post_or_drop([link, refused] {
      if (link->dialer_ == nullptr || std::exchange(link->told_, true)) return;
      if (link->events_->on_dropped) link->events_->on_dropped(refused);
    });
  });
}

void SimLink::close() {
  const MemoryScope own(nullptr);
  dialer_ = nullptr;
  backward_.queue.clear();
  if (std::exchange(dropped_, true)) return;
  shorten(forward_);
}

void SimLink::lose_acceptor() {
  const MemoryScope own(nullptr);
  acceptor_ = nullptr;
  drop(false);
  forward_.queue.clear();
}

bool SimLink::is_parted() const { return is_parted(forward_) || is_parted(backward_); }

bool SimLink::is_parted(const Direction& direction) const {
  return &direction == &forward_ ? network_.is_parted(dialer_host_, acceptor_host_)
                                 : network_.is_parted(acceptor_host_, dialer_host_);
}

bool SimLink::is_between(const std::string& a, const std::string& b) const {
  return is_dialled(a, b) || is_dialled(b, a);
}

bool SimLink::has_dead_side() const {
  return (dialer_ != nullptr && dialer_->dead_) || (acceptor_ != nullptr && acceptor_->transport().dead_);
}

SimAcceptor::SimAcceptor(SimTransport& transport, std::string endpoint, AcceptorEvents events)
    : transport_(transport),
      endpoint_(std::move(endpoint)),
      events_(std::make_shared<AcceptorEvents>(std::move(events))) {
  transport_.network_.acceptors_.emplace(endpoint_, this);
}

SimAcceptor::~SimAcceptor() {
  auto& acceptors = transport_.network_.acceptors_;
  const auto found = acceptors.find(endpoint_);
  if (found != acceptors.end() && found->second == this) acceptors.erase(found);
  for (const auto& [token, link] : links_) link->lose_acceptor();
}

bool SimAcceptor::reply(const ConnectionToken& to, Frames frames) {
  const auto found = links_.find(to);
  return found != links_.end() && found->second->reply(std::move(frames));
}

std::string SimAcceptor::name_of(const ConnectionToken& from) const {
  const auto found = links_.find(from);
  return found == links_.end() ? std::string() : found->second->key_name();
}

void SimAcceptor::tell_lack() {
  if (transport_.dead_) return;
  transport_.loop_.post_or_drop([weak = std::weak_ptr<AcceptorEvents>(events_)] {
    const auto events = weak.lock();
    if (!events || !events->on_lack) return;
    events->on_lack(Error(Status::kOutOfMemory, "no descriptors are left to accept (ulimit -n)"));
  });
}

void SimAcceptor::accept(const std::shared_ptr<SimLink>& link) {
  std::erase_if(links_, [](const auto& entry) { return entry.second.use_count() == 1 && entry.second->is_over(); });
  links_.emplace(link->token(), link);
}

}  // namespace distag::sim
