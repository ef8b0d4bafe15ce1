#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "worker/worker.h"

namespace distag {

// The places where the worker meets others, listens and is found: as the host gave them, or as numbers.
struct Places {
  RendezvousTarget target;
  std::string bind;
  std::string advertise;
  std::string own_host = {};  // the address of this machine towards the rendezvous; empty: that is on this machine
};

// The first step of a start: addresses become numbers, off the loop, as a name server may not answer. A search has one
// result:
// never after stop(), nor after the deadline was its result. On the loop; shared with the task that searches.
class PlaceFinder : public std::enable_shared_from_this<PlaceFinder> {
 public:
  using Done = std::function<void(const Places& found, const std::optional<Error>& error)>;

  PlaceFinder(Loop& loop, Executor& compute, PlaceTools tools)
      : loop_(loop), compute_(compute), tools_(std::move(tools)) {}

  // Finds the places that the options and the environment name. `done` runs within this call if nothing has to be
  // resolved, else by a task of its own; with DEADLINE once the deadline has passed. Throws if it cannot begin.
  void find(const WorkerOptions& options, Nanos deadline, Done done);
  // Ends the search, if there is one, without a result.
  void stop();

 private:
  void resolve(Places& wanted) const;
  std::string ask_launcher(RendezvousTarget& target) const;
  void resolve_one(const char* option, std::string& address) const;
  std::string own_address_towards(const std::string& uri) const;
  void end(const Places& found, const std::optional<Error>& error);

  Loop& loop_;
  Executor& compute_;
  const PlaceTools tools_;
  Done done_;            // while a search has no result
  uint64_t search_ = 0;  // the current number: results of earlier searches are dropped
  Loop::TimerId timer_ = 0;
};

}  // namespace distag
