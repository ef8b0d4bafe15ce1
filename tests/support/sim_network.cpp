#include "support/sim_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "support/sim_link.h"

namespace distag::sim {
namespace {

void check_address(const std::string& address) {
  if (address.find("://") == std::string::npos) {
    fail(Status::kInvalidArgument, "\"{}\" is no address: write scheme://place", address);
  }
}

}  // namespace

SimNetwork::SimNetwork(SimScheduler& scheduler, SimFaults given) : faults(given), scheduler_(scheduler) {}

SimNetwork::~SimNetwork() = default;

// Damages a byte of a frame, in a copy: the frames of the sender stay as they are.
void SimNetwork::damage(Frames& frames) {
  Frame& frame = frames[scheduler_.below(frames.size())];
  if (frame.size() == 0) return;
  std::vector<std::byte> bytes(frame.data(), frame.data() + frame.size());
  bytes[scheduler_.below(bytes.size())] ^= static_cast<std::byte>(1 + scheduler_.below(255));
  frame = Frame::of(std::move(bytes));
}

bool SimNetwork::is_parted(const std::string& from, const std::string& to) const {
  return !parted_.empty() && parted_.contains(std::pair(from, to));
}

void SimNetwork::drop_where(const std::function<bool(const SimLink&)>& chosen) {
  std::erase_if(links_, [](const auto& link) { return link.expired(); });
  const auto links = links_;
  for (const auto& weak : links) {
    const auto link = weak.lock();
    if (link && chosen(*link)) link->drop(false);
  }
}

void SimNetwork::cut(const std::string& a, const std::string& b) {
  drop_where([&a, &b](const SimLink& link) { return link.is_between(a, b); });
}

void SimNetwork::cut_all() {
  drop_where([](const SimLink&) { return true; });
}

void SimNetwork::hang_up(const std::string& from, const std::string& to) {
  drop_where([&from, &to](const SimLink& link) { return link.is_dialled(from, to); });
}

void SimNetwork::part(const std::string& a, const std::string& b) {
  part_one_way(a, b);
  part_one_way(b, a);
}

void SimNetwork::part_one_way(const std::string& from, const std::string& to) { parted_.emplace(from, to); }

void SimNetwork::join(const std::string& a, const std::string& b) {
  parted_.erase(std::pair(a, b));
  parted_.erase(std::pair(b, a));
}

void SimNetwork::put(std::set<std::string>& hosts, const std::string& host, bool is_in) {
  if (is_in) {
    hosts.insert(host);
  } else {
    hosts.erase(host);
  }
}

void SimNetwork::deny(const std::string& endpoint, const std::string& why) {
  const auto found = acceptors_.find(endpoint);
  if (found != acceptors_.end() && found->second->events()->on_denied) found->second->events()->on_denied(why);
}

void SimNetwork::set_short(const std::string& host, bool is_short) { put(short_, host, is_short); }
void SimNetwork::set_deaf(const std::string& host, bool is_deaf) { put(deaf_, host, is_deaf); }
void SimNetwork::set_mute(const std::string& host, bool is_mute) { put(mute_, host, is_mute); }
void SimNetwork::set_without_ports(const std::string& host, bool has_none) { put(without_ports_, host, has_none); }

void SimNetwork::set_without_memory(const std::string& host, bool has_none) { put(without_memory_, host, has_none); }

Nanos SimNetwork::work_at(const std::string& host) {
  Nanos& until = busy_until_[host];
  return until = std::max(until, scheduler_.now()) + faults.handshake_work;
}

void SimNetwork::kill(const std::string& host) {
  for (SimTransport* transport : transports_) {
    if (transport->host_ == host) transport->dead_ = true;
  }
  std::erase_if(acceptors_, [](const auto& entry) { return entry.second->transport().dead_; });
  drop_where([](const SimLink& link) { return link.has_dead_side(); });
}

SimTransport::SimTransport(SimNetwork& network, SimLoop& loop, std::string host)
    : network_(network), loop_(loop), host_(std::move(host)) {
  network_.transports_.insert(this);
}

SimTransport::~SimTransport() { network_.transports_.erase(this); }

std::unique_ptr<Acceptor> SimTransport::listen(const std::string& address, AcceptorEvents events) {
  const MemoryScope own(nullptr);
  check_address(address);
  if (dead_) fail(Status::kInvalidState, "host \"{}\" is dead", host_);
  std::string endpoint = address;
  if (address.starts_with("tcp://") && address.ends_with(":0")) {
    endpoint = fmt::format("{}{}", address.substr(0, address.size() - 1), 20000 + network_.next_name_++);
  }
  if (network_.acceptors_.contains(endpoint)) {
    fail(Status::kInvalidState, "the address \"{}\" is in use", endpoint);
  }
  return std::make_unique<SimAcceptor>(*this, std::move(endpoint), std::move(events));
}

std::unique_ptr<Connection> SimTransport::dial(const std::string& endpoint, ConnectionEvents events) {
  const MemoryScope own(nullptr);
  check_address(endpoint);
  const bool has_descriptors = events.is_redial || !network_.redial_only_.contains(host_);
  if (!has_descriptors || network_.is_mute(host_) || network_.scheduler_.chance(network_.faults.no_descriptor)) {
    fail(Status::kOutOfMemory, "no descriptors are left for another connection (ulimit -n)");
  }
  const auto link = std::make_shared<SimLink>(network_, *this, std::move(events), network_.next_name_++);
  network_.links_.push_back(link);
  if (network_.links_.size() % 256 == 0) {
    std::erase_if(network_.links_, [](const auto& known) { return known.expired(); });
  }
  if (!dead_) link->dial(endpoint);
  return std::make_unique<SimConnection>(link);
}

void SimTransport::check_endpoint(const std::string& endpoint) const { check_address(endpoint); }

std::string SimTransport::private_address() { return fmt::format("sim://{}/{}", host_, network_.next_name_++); }

}  // namespace distag::sim
