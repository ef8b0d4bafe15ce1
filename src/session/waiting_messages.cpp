#include "session/waiting_messages.h"

#include <new>
#include <utility>

namespace distag {

bool WaitingMessages::send(QueuedMessage message) {
  if (!can_number() || !queue_.empty()) {
    queue_.push_back(std::move(message));
    return false;
  }
  wire::Message numbered{0, 0, {}, std::move(message.body)};
  number(numbered, message.options, nullptr);
  return true;
}

void WaitingMessages::send_large(LargeMessage message) {
  large_.push_back(std::move(message));
  pump_if_possible();
}

bool WaitingMessages::withdraw(Session::Ticket ticket) {
  const size_t queued = queue_.find([ticket](const QueuedMessage& one) { return one.ticket == ticket; });
  if (queued < queue_.size()) {
    queue_.erase(queued);
    return true;
  }
  const size_t large = large_.find([ticket](const LargeMessage& one) { return one.message().ticket == ticket; });
  if (large == large_.size()) return false;
  sender_.abandon(large_[large]);
  large_.erase(large);
  pump_if_possible();
  return true;
}

void WaitingMessages::leave() {
  farewell_ = Farewell::kDue;
  pump_if_possible();
}

void WaitingMessages::ping() {
  if (farewell_ == Farewell::kNone && can_number()) number(wire::Ping{});
}

void WaitingMessages::clear() {
  std::exchange(stuck_, nullptr).reset();
  queue_.clear();
  large_.clear();
  farewell_ = Farewell::kSaid;
}

// Without memory the next tick tries again.
void WaitingMessages::pump_if_possible() {
  if (!turn_.begin()) return;
  try {
    number_waiting();
  } catch (const std::bad_alloc&) {
    sender_.note_shortage();
  }
}

void WaitingMessages::pump() {
  free_stuck();
  number_waiting();
}

// Numbers messages while the connection takes them. Small messages go first, so that they pass between chunks; LEAVE
// goes last, as nothing follows it. Each step leaves everything in its place when it throws.
void WaitingMessages::number_waiting() {
  while (can_number() && turn_.has_more()) {
    make_spare();  // a message that is taken out is not lost then
    if (!queue_.empty()) {
      number_queued();
    } else if (sender_.has_abandoned()) {
      sender_.add_abandoned();
    } else if (!large_.empty() && large_.front().is_ahead()) {
      number_large();
    } else if (!large_.empty()) {
      if (!sender_.add_chunk(large_.front())) break;  // the next acknowledgement resumes it
    } else if (farewell_ == Farewell::kDue) {
      number(wire::Leave{});
      farewell_ = Farewell::kSaid;
    } else {
      break;
    }
  }
}

void WaitingMessages::number(wire::Body body) {
  wire::Message message{0, 0, {}, std::move(body)};
  SendOptions options;
  number(message, options, nullptr);
}

// A message that finds no memory before on_number has run stays in front.
void WaitingMessages::number_queued() {
  std::unique_ptr<QueuedMessage> queued = queue_.borrow_front();
  wire::Message message{0, 0, {}, std::move(queued->body)};
  try {
    number(message, queued->options, nullptr);
  } catch (const std::bad_alloc&) {
    queued->body = std::move(message.body);
    queue_.put_back(std::move(queued));
    throw;
  }
  queue_.tidy();
}

void WaitingMessages::number_large() {
  wire::Message message{0, 0, large_.front().transfers(), {}};
  std::unique_ptr<LargeMessage> large = large_.borrow_front();
  message.body = std::move(large->message().body);
  try {
    number(message, large->message().options, large.get());
  } catch (const std::bad_alloc&) {
    large->message().body = std::move(message.body);
    large_.put_back(std::move(large));
    throw;
  }
  large_.tidy();
}

// on_number runs first: what it sends to the same peer goes before. From then on other messages depend on this one, so
// it goes out in any case. The place where it may have to wait for memory is allocated before.
void WaitingMessages::number(wire::Message& message, SendOptions& options, LargeMessage* large) {
  make_spare();
  std::unique_ptr<Stuck> place = std::move(spare_);
  if (options.on_number) options.on_number(message);
  if (sender_.is_closed()) return;
  *place = {std::move(message), std::move(options.on_acknowledged), std::nullopt, nullptr};
  if (large != nullptr) place->large = std::move(*large);
  if (stuck_ != nullptr) return stick(std::move(place));
  try {
    sender_.add(place->message, place->large, place->on_acknowledged);
    *place = {};
    if (spare_ == nullptr) spare_ = std::move(place);
  } catch (const std::bad_alloc&) {
    stick(std::move(place));
  }
}

void WaitingMessages::make_spare() {
  if (spare_ == nullptr) spare_ = std::make_unique<Stuck>();
}

void WaitingMessages::stick(std::unique_ptr<Stuck> place) {
  std::unique_ptr<Stuck>* last = &stuck_;
  while (*last != nullptr) last = &(*last)->next;
  *last = std::move(place);
  sender_.note_shortage();
}

void WaitingMessages::free_stuck() {
  while (stuck_ != nullptr && sender_.takes_more() && turn_.has_more()) {
    sender_.add(stuck_->message, stuck_->large, stuck_->on_acknowledged);
    std::unique_ptr<Stuck> gone = std::move(stuck_);
    stuck_ = std::move(gone->next);
    *gone = {};
    if (spare_ == nullptr) spare_ = std::move(gone);
  }
}

}  // namespace distag
