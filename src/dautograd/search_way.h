#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dautograd/discovery.h"
#include "dautograd/pass_way.h"

namespace distag {

// A part that searches, with a Discovery: the walks reach recvs, whose other halves are asked for, and so on, until all
// are answered. The search ends for good: then the part runs, which another worker's part learns from its first GRAD,
// or from GO. On the loop.
class SearchWay final : public PassWay, Discovery::Owner {
 public:
  explicit SearchWay(Part part);

  void begin(std::vector<autograd::Edge> roots, Reached reached, Entries entries) override;
  void on_walked(const Id& walk, const Reached& reached, const Entries& entries) override;
  void on_walk_failed(const Id& walk, const Error& error) override;
  bool end_search() override;
  void take(PassGrads::Gradient gradient) override;
  bool is_searching() const override { return !is_over_ && discovery_.is_open(); }
  std::vector<std::string> waits_for() const override;
  void on_discover(const Peer& from, const wire::Discover& discover) override;
  Heard on_discovered(const Peer& from, const wire::Discovered& discovered) override;
  void on_initiator_lost(const Error& error) override;

 private:
  using Sources = std::vector<std::pair<std::shared_ptr<SendNode>, autograd::Bits>>;

  // Discovery::Owner
  void on_planned(const std::set<Incarnation>& participants, bool has_entries) override;
  void on_failed_search(const Error& error) override;

  // Add what a DISCOVER names. False: something of it is gone, and the answer says so.
  bool add_sources(const Peer& from, const wire::Discover& discover, Sources& sources);
  bool add_entries(const Peer& from, const wire::Discover& discover, Entries& entries);

  Discovery discovery_;
  bool is_over_ = false;
};

}  // namespace distag
