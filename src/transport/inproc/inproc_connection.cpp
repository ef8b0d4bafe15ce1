#include "transport/inproc/inproc_connection.h"

#include <utility>

#include "base/error.h"

namespace distag {

// All on the loop, except pushes into the mailbox by others. Dialling -> connected -> ended; a refused dial and close()
// lead to ended at once. A callback may destroy the connection.
class InprocConnection::State final : public InprocMailbox::Owner,
                                      public std::enable_shared_from_this<InprocConnection::State> {
 public:
  explicit State(ConnectionEvents events) : events_(std::move(events)) {}

  void dial(const std::shared_ptr<InprocPort>& port, const std::string& name);
  bool send(const Frames& frames);
  void close();
  void on_item(InprocMailbox::Item item) override;

 private:
  enum class Phase { kDialling, kConnected, kEnded };
  using Kind = InprocMailbox::Item::Kind;

  void end(bool refused);
  void become_writable();

  const ConnectionEvents events_;
  std::shared_ptr<InprocMailbox> mailbox_;
  std::shared_ptr<InprocListener> listener_;
  uint64_t number_ = 0;  // at the listener
  Phase phase_ = Phase::kDialling;
  bool wants_to_write_ = false;
};

void InprocConnection::State::dial(const std::shared_ptr<InprocPort>& port, const std::string& name) {
  mailbox_ = std::make_shared<InprocMailbox>(port, weak_from_this());
  listener_ = InprocListener::find(name);
  // Pushed first: an end that comes right after connect() must come second.
  mailbox_->push(Kind::kConnected);
  if (listener_) number_ = listener_->connect(mailbox_);
  if (number_ == 0) mailbox_->push(Kind::kRefused);
}

bool InprocConnection::State::send(const Frames& frames) {
  mailbox_->assert_on_loop();
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  if (phase_ == Phase::kConnected && listener_->push(number_, frames, mailbox_) == InprocMailbox::Pushed::kTaken) {
    return true;
  }
  wants_to_write_ = true;
  return false;
}

void InprocConnection::State::close() {
  phase_ = Phase::kEnded;
  if (listener_) listener_->disconnect(number_);
  listener_.reset();
  mailbox_->close();
}

void InprocConnection::State::on_item(InprocMailbox::Item item) {
  mailbox_->assert_on_loop();
  if (phase_ == Phase::kEnded) return;
  switch (item.kind) {
    case Kind::kConnected:
      if (number_ == 0) return;
      phase_ = Phase::kConnected;
      if (events_.on_connected) events_.on_connected();
      become_writable();
      return;
    case Kind::kMessage:
      if (events_.on_message) events_.on_message(std::move(item.frames));
      return;
    case Kind::kWritable:
      become_writable();
      return;
    case Kind::kRefused:
      end(true);
      return;
    case Kind::kDropped:
      end(false);
      return;
  }
}

void InprocConnection::State::become_writable() {
  if (phase_ != Phase::kConnected || !std::exchange(wants_to_write_, false)) return;
  if (events_.on_writable) events_.on_writable();
}

void InprocConnection::State::end(bool refused) {
  phase_ = Phase::kEnded;
  if (events_.on_dropped) events_.on_dropped(refused);
}

InprocConnection::InprocConnection(const std::shared_ptr<InprocPort>& port, const std::string& name,
                                   ConnectionEvents events)
    : state_(std::make_shared<State>(std::move(events))) {
  state_->dial(port, name);
}

InprocConnection::~InprocConnection() { state_->close(); }

bool InprocConnection::send(const Frames& frames) { return state_->send(frames); }

}  // namespace distag
