#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "group/http_client.h"
#include "support/sim_lanes.h"
#include "support/sim_scheduler.h"

namespace distag::testing {

// An etcd in the memory of a simulation: as much of its JSON gateway as is used here, with faults that a test chooses.
class FakeEtcd {
 public:
  using Json = nlohmann::json;

  struct Entry {
    std::string value;
    int64_t create_revision = 0;
    int64_t mod_revision = 0;
    int64_t lease = 0;
  };

  explicit FakeEtcd(sim::SimScheduler& scheduler) : scheduler_(scheduler) {}

  // ---- what a test sees and does ----

  const std::map<std::string, Entry>& entries() const { return entries_; }
  void put(const std::string& key, const std::string& value) { put_entry(key, value, 0); }
  void erase(const std::string& key) { erase_range(key, ""); }
  size_t lease_count() const { return leases_.size(); }
  // Ends all leases, as if their members had been stopped for long.
  void end_leases();
  // An administrator does this while all servers are stopped: leases that were there get their time again, and watches
  // end.
  void save_snapshot();
  void restore_snapshot();
  // Watches from an older revision are refused, and those that are open end.
  void compact();

  std::set<std::string> mute;                                 // servers ("host:port") that never answer
  std::set<std::string> down;                                 // that refuse connections
  std::map<std::string, std::string> garbage;                 // answers with status 200, whatever is asked
  std::string user, password;                                 // empty: no client has to authenticate
  std::function<bool(const std::string& path)> loses_answer;  // to a request that is done all the same
  std::function<void(const std::string& body)> before;        // called before each transaction
  int watches_begun = 0;
  bool is_memory_short = false;    // at the clients
  std::vector<std::string> asked;  // "host:port/path", in order
  std::set<std::string> tokens;

  // ---- for FakeHttp ----

  struct Answer {
    int status = 200;
    Json body;
  };
  Answer handle(const std::string& path, const Json& request, const std::string& token);
  struct Watch {
    std::string key, end;
    std::function<void(const Json&)> on_line;
  };
  uint64_t add_watch(const Json& request, std::function<void(const Json&)> on_line);
  void remove_watch(uint64_t id) { watches_.erase(id); }
  sim::SimScheduler& scheduler() { return scheduler_; }

 private:
  struct Lease {
    int64_t seconds = 0;
    Nanos end = 0;
  };

  Answer refuse(int status, int code, const std::string& text) const;
  Answer transact(const Json& request);
  bool holds(const Json& compare) const;
  Json header() const { return {{"revision", std::to_string(revision_)}}; }
  std::vector<std::string> keys_in(const std::string& key, const std::string& end) const;
  Json range(const Json& request) const;
  void put_entry(const std::string& key, const std::string& value, int64_t lease);
  void erase_range(const std::string& key, const std::string& end);
  void tell(const std::string& key);
  void end_lease(int64_t lease);
  bool has_changed_since(const std::string& key, const std::string& end, int64_t revision) const;
  void extend(int64_t lease, int64_t seconds);
  void expire();

  sim::SimScheduler& scheduler_;
  int64_t revision_ = 1;
  int64_t compacted_ = 0;
  int64_t next_lease_ = 7000;
  uint64_t next_watch_ = 1;
  std::map<std::string, Entry> entries_;
  std::map<std::string, int64_t> changes_;  // the last one of each key, its end included
  std::map<int64_t, Lease> leases_;
  std::map<uint64_t, Watch> watches_;
  struct Snapshot {
    int64_t revision = 1;
    std::map<std::string, Entry> entries;
    std::map<int64_t, Lease> leases;
  };
  Snapshot snapshot_;
};

// The HTTP client of a loop for the etcd. Answers take a few milliseconds.
class FakeHttp final : public HttpClient {
 public:
  FakeHttp(FakeEtcd& etcd, Loop& loop) : etcd_(etcd), loop_(loop) {}
  ~FakeHttp() override { stop(); }

  uint64_t send(HttpRequest request) override;
  void cancel(uint64_t id) override;
  void stop();  // as at the end of the process

 private:
  struct Open {
    HttpRequest request;
    uint64_t watch = 0;
  };
  void arrive(uint64_t id);
  void answer(uint64_t id, const HttpAnswer& answer);
  void after(Nanos time, std::function<void()> what);

  FakeEtcd& etcd_;
  Loop& loop_;
  bool is_stopped_ = false;
  uint64_t next_ = 1;
  std::map<uint64_t, Open> open_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace distag::testing
