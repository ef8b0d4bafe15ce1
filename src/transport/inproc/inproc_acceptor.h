#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "transport/inproc/inproc_mailbox.h"

namespace distag {

// A name in the table of the process, and the connections dialled to it.
class InprocListener final : public InprocMailbox::Owner, public std::enable_shared_from_this<InprocListener> {
 public:
  InprocListener(std::string name, AcceptorEvents events);

  // Puts the listener into the table; throws INVALID_STATE when the name is taken.
  void open(const std::shared_ptr<InprocPort>& port);
  // Takes the listener out of the table, and drops all connections.
  void close();
  // The listener at the name, or nullptr.
  static std::shared_ptr<InprocListener> find(const std::string& name);

  const std::string& name() const { return name_; }

  // For the dialling sides, on any thread. 0: the listener is closed.
  uint64_t connect(const std::shared_ptr<InprocMailbox>& client);
  void disconnect(uint64_t connection);
  InprocMailbox::Pushed push(uint64_t connection, Frames frames, const std::shared_ptr<InprocMailbox>& client);

  // On the loop of the listener.
  bool reply(uint64_t connection, Frames frames);
  void on_item(InprocMailbox::Item item) override;

 private:
  const std::string name_;
  const AcceptorEvents events_;
  std::shared_ptr<InprocMailbox> mailbox_;  // set by open()
  bool delivering_ = true;                  // on the loop; false once closed

  Mutex mutex_;  // held with no other lock
  bool closed_ GUARDED_BY(mutex_) = false;
  uint64_t last_connection_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::shared_ptr<InprocMailbox>> clients_ GUARDED_BY(mutex_);

  // Links of the table, under its lock.
  InprocListener* previous_ = nullptr;
  InprocListener* next_ = nullptr;
};

class InprocAcceptor final : public Acceptor {
 public:
  InprocAcceptor(const std::shared_ptr<InprocPort>& port, const std::string& name, AcceptorEvents events);
  ~InprocAcceptor() override;

  const std::string& endpoint() const override { return listener_->name(); }
  bool reply(const ConnectionToken& to, Frames frames) override;
  std::string name_of(const ConnectionToken&) const override { return {}; }  // names are not checked
  bool close_some() override { return false; }

 private:
  const std::shared_ptr<InprocListener> listener_;
};

}  // namespace distag
