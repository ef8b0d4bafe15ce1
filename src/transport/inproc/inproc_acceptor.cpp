#include "transport/inproc/inproc_acceptor.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/process_state.h"

namespace distag {
namespace {

// The table of names.
struct NameTable {
  InprocListener* head = nullptr;
};
ProcessState<NameTable> name_table;
using TableAccess = ProcessState<NameTable>::Access;

}  // namespace

InprocListener::InprocListener(std::string name, AcceptorEvents events)
    : name_(std::move(name)), events_(std::move(events)) {}

void InprocListener::open(const std::shared_ptr<InprocPort>& port) {
  mailbox_ = std::make_shared<InprocMailbox>(port, weak_from_this());
  const TableAccess table(name_table);
  for (const InprocListener* other = table->head; other != nullptr; other = other->next_) {
    if (other->name_ == name_) {
      fail(Status::kInvalidState, "\"{}\" is in use: another worker of this process listens there; take another name",
           name_);
    }
  }
  next_ = table->head;
  if (next_ != nullptr) next_->previous_ = this;
  table->head = this;
}

void InprocListener::close() {
  {
    const TableAccess table(name_table);
    if (previous_ != nullptr) previous_->next_ = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
    if (table->head == this) table->head = next_;
  }
  std::map<uint64_t, std::shared_ptr<InprocMailbox>> clients;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    clients.swap(clients_);
  }
  delivering_ = false;
  mailbox_->close();
  for (const auto& [number, client] : clients) client->push(InprocMailbox::Item::Kind::kDropped);
}

std::shared_ptr<InprocListener> InprocListener::find(const std::string& name) {
  const TableAccess table(name_table);
  for (InprocListener* listener = table->head; listener != nullptr; listener = listener->next_) {
    if (listener->name_ == name) return listener->shared_from_this();
  }
  return nullptr;
}

uint64_t InprocListener::connect(const std::shared_ptr<InprocMailbox>& client) {
  MutexLock lock(mutex_);
  if (closed_) return 0;
  clients_.emplace(++last_connection_, client);
  return last_connection_;
}

void InprocListener::disconnect(uint64_t connection) {
  std::shared_ptr<InprocMailbox> client;  // destroyed after the lock is released
  MutexLock lock(mutex_);
  const auto found = clients_.find(connection);
  if (found == clients_.end()) return;
  client = std::move(found->second);
  clients_.erase(found);
}

InprocMailbox::Pushed InprocListener::push(uint64_t connection, Frames frames,
                                           const std::shared_ptr<InprocMailbox>& client) {
  return mailbox_->push_message(connection, std::move(frames), client);
}

bool InprocListener::reply(uint64_t connection, Frames frames) {
  mailbox_->assert_on_loop();
  std::shared_ptr<InprocMailbox> client;
  {
    MutexLock lock(mutex_);
    const auto found = clients_.find(connection);
    if (found == clients_.end()) return false;
    client = found->second;
  }
  return client->push_message(0, std::move(frames), nullptr) == InprocMailbox::Pushed::kTaken;
}

void InprocListener::on_item(InprocMailbox::Item item) {
  mailbox_->assert_on_loop();
  if (!delivering_ || !events_.on_message) return;
  ConnectionToken token(sizeof item.from);
  std::memcpy(token.data(), &item.from, sizeof item.from);
  events_.on_message(token, std::move(item.frames));
}

InprocAcceptor::InprocAcceptor(const std::shared_ptr<InprocPort>& port, const std::string& name, AcceptorEvents events)
    : listener_(std::make_shared<InprocListener>(name, std::move(events))) {
  listener_->open(port);
}

InprocAcceptor::~InprocAcceptor() { listener_->close(); }

bool InprocAcceptor::reply(const ConnectionToken& to, Frames frames) {
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  uint64_t connection = 0;
  if (to.size() != sizeof connection) return false;
  std::memcpy(&connection, to.data(), sizeof connection);
  return listener_->reply(connection, std::move(frames));
}

}  // namespace distag
