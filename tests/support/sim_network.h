#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/sim_lanes.h"
#include "support/sim_scheduler.h"
#include "transport/transport.h"

namespace distag::sim {

// Random faults, and how often each happens. All follow from the seed; fields may change while the simulation runs.
struct SimFaults {
  Nanos min_delay = 5 * kMicrosecond;
  Nanos max_delay = 300 * kMicrosecond;
  double drop = 0;           // chance for each message that its connection drops once it is on its way
  double fail_dial = 0;      // chance for each dial that it comes to nothing, though a host listens
  double no_descriptor = 0;  // chance for each dial that it is refused at once, as no descriptor is left for it
  double flip = 0;    // chance for each message that bits of a byte flip on its way, where a transport is not exact
  double vanish = 0;  // chance for each message that it never comes, though the connection stays; the same
  double lose = 0;    // chance for each frame behind the first that there is no memory for it where it arrives
  double would_block = 0;   // chance for each send to be told to come back later
  Nanos delay_per_kib = 0;  // the larger, the later
  size_t capacity = 1000;   // messages on their way in one direction of a connection
  // The work of each of the three words of a handshake, for the host that says it and the host that hears it. A host
  // works at one word at a time, in the order in which they come. 0: a handshake takes no time.
  Nanos handshake_work = 0;
};

struct SimTraffic {
  uint64_t messages = 0;
  uint64_t bytes = 0;
  uint64_t dials = 0;
  uint64_t drops = 0;
};

class SimAcceptor;
class SimConnection;
class SimLink;
class SimTransport;

// Connects the transports of a simulation. Each belongs to a host, by name; hosts are cut, parted or killed.
// Connections keep their order, differ in delay, and lose only suffixes: when one drops, its receivers still get a
// first part of what was on its way.
class SimNetwork {
 public:
  explicit SimNetwork(SimScheduler& scheduler, SimFaults given = {});
  ~SimNetwork();

  SimFaults faults;

  // Drops the connections between two hosts, or all, at once. They may dial again.
  void cut(const std::string& a, const std::string& b);
  void cut_all();
  // Drops the connection that `from` has dialled to `to`.
  void hang_up(const std::string& from, const std::string& to);
  // Nothing moves between two hosts, and neither is told: what is on its way waits, dials hang until they fail.
  void part(const std::string& a, const std::string& b);
  // The same in one direction.
  void part_one_way(const std::string& from, const std::string& to);
  void join(const std::string& a, const std::string& b);
  // Reports a refused dialler to the listener of the endpoint.
  void deny(const std::string& endpoint, const std::string& why);
  // No descriptor is left on the host: it cannot dial, and dials to it wait.
  void set_short(const std::string& host, bool is_short);
  // The same only for dials to the host.
  void set_deaf(const std::string& host, bool is_deaf);
  // The same only for dials of the host.
  void set_mute(const std::string& host, bool is_mute);
  // The system has no port for a connection from the host: it says so once the dial is under way.
  void set_without_ports(const std::string& host, bool has_none);
  // The host has no memory to send: std::bad_alloc.
  void set_without_memory(const std::string& host, bool has_none);
  // From now on a dial to the host hears a byte of a handshake at each such interval (0: none), and never the end of
  // the handshake.
  void let_drip(const std::string& host, Nanos every) { drips_[host] = every; }
  void stop_drip(const std::string& host) { drips_.erase(host); }
  // From now on the host has descriptors for redials only.
  void let_redial_only(const std::string& host) { redial_only_.insert(host); }
  // The host's process dies: its connections drop, its endpoints refuse. A transport made later on it lives.
  void kill(const std::string& host);

  // Sees each message when it is sent.
  using Tap = std::function<void(const std::string& from, const std::string& to, const Frames& frames)>;
  void set_tap(Tap tap) { tap_ = std::move(tap); }
  const SimTraffic& traffic() const { return traffic_; }
  // The hosts whose transport was told to let last words go.
  const std::set<std::string>& orderly_ends() const { return orderly_ends_; }

 private:
  friend class SimAcceptor;
  friend class SimLink;
  friend class SimTransport;

  static void put(std::set<std::string>& hosts, const std::string& host, bool is_in);
  void damage(Frames& frames);
  bool is_parted(const std::string& from, const std::string& to) const;
  bool is_short(const std::string& host) const { return short_.contains(host); }
  bool is_mute(const std::string& host) const { return is_short(host) || mute_.contains(host); }
  bool is_deaf(const std::string& host) const { return is_short(host) || deaf_.contains(host); }
  // The time at which the host has done a piece of work that begins now, or after all work before it.
  Nanos work_at(const std::string& host);
  Nanos delay() { return scheduler_.between(faults.min_delay, faults.max_delay); }
  void drop_where(const std::function<bool(const SimLink&)>& chosen);

  SimScheduler& scheduler_;
  Tap tap_;
  SimTraffic traffic_;
  std::map<std::string, SimAcceptor*> acceptors_;
  std::vector<std::weak_ptr<SimLink>> links_;
  std::set<SimTransport*> transports_;
  std::set<std::pair<std::string, std::string>> parted_;
  std::set<std::string> short_;  // hosts without descriptors
  std::set<std::string> deaf_;
  std::set<std::string> mute_;
  std::set<std::string> without_ports_;
  std::set<std::string> without_memory_;
  std::set<std::string> redial_only_;
  std::set<std::string> orderly_ends_;
  std::map<std::string, Nanos> drips_;
  std::map<std::string, Nanos> busy_until_;
  uint64_t next_name_ = 1;
};

// Frames over the network, for one loop on one host. Takes any address with "://"; a tcp port 0 becomes a free one.
class SimTransport final : public Transport {
 public:
  SimTransport(SimNetwork& network, SimLoop& loop, std::string host);
  ~SimTransport() override;

  std::unique_ptr<Acceptor> listen(const std::string& address, AcceptorEvents events) override;
  std::unique_ptr<Connection> dial(const std::string& endpoint, ConnectionEvents events) override;
  std::unique_ptr<Connection> dial_worker(const std::string&, const std::string& endpoint,
                                          ConnectionEvents events) override {
    return dial(endpoint, std::move(events));
  }
  std::string explain_denial() const override { return "its keys do not fit"; }
  void check_endpoint(const std::string& endpoint) const override;
  std::string private_address() override;
  void let_last_words_go() override { network_.orderly_ends_.insert(host_); }
  bool is_exact() const override { return exact; }
  bool reports_every_loss() const override { return reports_losses; }
  LaneReport lane_report() const override { return {}; }
  SocketReport socket_report() const override { return {}; }
  void check_descriptors(size_t) const override {}

  // The answers of is_exact() and reports_every_loss(). Hosts that are parted here are not told.
  bool exact = true;
  bool reports_losses = false;
  // The worker whose key this transport dials with; empty: it has no key.
  std::string key_name;

 private:
  friend class SimAcceptor;
  friend class SimLink;
  friend class SimNetwork;

  SimNetwork& network_;
  SimLoop& loop_;
  const std::string host_;
  bool dead_ = false;
};

}  // namespace distag::sim
