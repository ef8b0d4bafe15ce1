#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "support/sim_network.h"

namespace distag::sim {

// A connection, seen from both sides. The messages that are on their way in each direction lie in a queue; an event per
// message takes one from the front, so that the order holds whatever the delays are. Outlives both sides as long as
// something is on its way.
class SimLink : public std::enable_shared_from_this<SimLink> {
 public:
  SimLink(SimNetwork& network, SimTransport& dialer, ConnectionEvents events, uint64_t id);

  // Dialer's side.
  void dial(const std::string& endpoint);
  bool send(const Frames& frames);
  void close();

  // Acceptor's side.
  bool reply(Frames frames);
  void lose_acceptor();

  void drop(bool refused);
  bool is_between(const std::string& a, const std::string& b) const;
  bool is_dialled(const std::string& from, const std::string& to) const {
    return dialer_host_ == from && acceptor_host_ == to;
  }
  bool has_dead_side() const;
  uint64_t heard_bytes() const { return heard_bytes_; }
  // No event of the link reaches anything but its holders any more.
  bool is_over() const { return dropped_ && forward_.queue.empty(); }
  const ConnectionToken& token() const { return token_; }
  const std::string& key_name() const { return key_name_; }

 private:
  struct Direction {
    std::deque<Frames> queue;
    Nanos last = 0;
  };

  void establish_at(Nanos when, const std::string& endpoint);
  void establish(const std::string& endpoint);
  void shake(int words, const std::string& endpoint);
  void connect(const std::string& endpoint);
  void drip(Nanos every);
  void end_without_port();
  void put(Direction& direction, Frames frames, const std::string& from, const std::string& to);
  void deliver(Direction& direction);
  void tell_of_part(const Direction& direction);
  void hand_over(Direction& direction, Frames frames);
  void wake_dialer();
  void shorten(Direction& direction);
  bool is_parted() const;  // in one direction at least
  bool is_parted(const Direction& direction) const;

  SimNetwork& network_;
  SimTransport* dialer_;  // nullptr: closed
  SimLoop& dialer_loop_;
  const std::string dialer_host_;
  const std::string key_name_;
  std::string acceptor_host_;
  SimAcceptor* acceptor_ = nullptr;  // nullptr: not connected yet, or gone
  const std::shared_ptr<ConnectionEvents> events_;
  ConnectionToken token_;
  Direction forward_;
  Direction backward_;
  Nanos dial_ends_ = kNever;
  uint64_t heard_bytes_ = 0;  // of the handshake, by the dialler
  bool connected_ = false;
  bool dropped_ = false;
  bool told_ = false;     // on_dropped has been called: nothing follows
  bool starved_ = false;  // a send was refused: on_writable is owed
};

class SimConnection final : public Connection {
 public:
  explicit SimConnection(std::shared_ptr<SimLink> link) : link_(std::move(link)) {}
  ~SimConnection() override { link_->close(); }
  bool send(const Frames& frames) override { return link_->send(frames); }
  void lend(Frames&, size_t) override {}
  void distrust() override {}
  std::string found() const override { return {}; }
  uint64_t heard_bytes() const override { return link_->heard_bytes(); }

 private:
  const std::shared_ptr<SimLink> link_;
};

class SimAcceptor final : public Acceptor {
 public:
  SimAcceptor(SimTransport& transport, std::string endpoint, AcceptorEvents events);
  ~SimAcceptor() override;

  const std::string& endpoint() const override { return endpoint_; }
  bool reply(const ConnectionToken& to, Frames frames) override;
  std::string name_of(const ConnectionToken& from) const override;
  bool close_some() override { return false; }

  void accept(const std::shared_ptr<SimLink>& link);
  void tell_lack();  // diallers wait
  const std::shared_ptr<AcceptorEvents>& events() const { return events_; }
  SimTransport& transport() const { return transport_; }

 private:
  SimTransport& transport_;
  const std::string endpoint_;
  const std::shared_ptr<AcceptorEvents> events_;
  std::map<ConnectionToken, std::shared_ptr<SimLink>> links_;
};

}  // namespace distag::sim
