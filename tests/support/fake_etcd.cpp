#include "support/fake_etcd.h"

#include <algorithm>
#include <utility>

#include "base/base64.h"

namespace distag::testing {
namespace {

using Json = nlohmann::json;

std::string bytes(const Json& json, const char* key) {
  return json.contains(key) ? from_base64(json[key].get<std::string>()).value() : std::string();
}

int64_t number(const Json& json, const char* key) {
  return json.contains(key) ? std::stoll(json[key].get<std::string>()) : 0;
}

struct Url {
  std::string server;
  std::string path;
};

Url split(const std::string& url) {
  const std::string rest = url.substr(url.find("://") + 3);
  const size_t slash = rest.find('/');
  return {rest.substr(0, slash), rest.substr(slash)};
}

}  // namespace

std::vector<std::string> FakeEtcd::keys_in(const std::string& key, const std::string& end) const {
  std::vector<std::string> keys;
  for (const auto& [name, entry] : entries_) {
    if (end.empty() ? name == key : name >= key && name < end) keys.push_back(name);
  }
  return keys;
}

bool FakeEtcd::has_changed_since(const std::string& key, const std::string& end, int64_t revision) const {
  return std::any_of(changes_.begin(), changes_.end(), [&](const auto& change) {
    const bool is_meant = end.empty() ? change.first == key : change.first >= key && change.first < end;
    return is_meant && change.second >= revision;
  });
}

void FakeEtcd::tell(const std::string& key) {
  changes_[key] = revision_;
  std::vector<std::function<void(const Json&)>> told;
  for (const auto& [id, watch] : watches_) {
    if (watch.end.empty() ? key == watch.key : key >= watch.key && key < watch.end) told.push_back(watch.on_line);
  }
  for (const auto& on_line : told) on_line({{"result", {{"header", header()}, {"events", Json::array({Json()})}}}});
}

void FakeEtcd::put_entry(const std::string& key, const std::string& value, int64_t lease) {
  Entry& entry = entries_[key];
  if (entry.create_revision == 0) entry.create_revision = revision_;
  entry.value = value;
  entry.mod_revision = revision_;
  entry.lease = lease;
  tell(key);
}

void FakeEtcd::erase_range(const std::string& key, const std::string& end) {
  for (const std::string& name : keys_in(key, end)) {
    entries_.erase(name);
    tell(name);
  }
}

void FakeEtcd::end_lease(int64_t lease) {
  leases_.erase(lease);
  std::vector<std::string> keys;
  for (const auto& [name, entry] : entries_) {
    if (entry.lease == lease) keys.push_back(name);
  }
  if (!keys.empty()) ++revision_;
  for (const std::string& key : keys) erase_range(key, "");
}

void FakeEtcd::end_leases() {
  while (!leases_.empty()) end_lease(leases_.begin()->first);
}

void FakeEtcd::extend(int64_t lease, int64_t seconds) {
  leases_[lease] = {seconds, scheduler_.now() + seconds * kSecond};
  scheduler_.at(leases_[lease].end, [this] { expire(); });
}

void FakeEtcd::expire() {
  std::vector<int64_t> over;
  for (const auto& [id, lease] : leases_) {
    if (lease.end <= scheduler_.now()) over.push_back(id);
  }
  for (const int64_t id : over) end_lease(id);
}

void FakeEtcd::save_snapshot() { snapshot_ = {revision_, entries_, leases_}; }

void FakeEtcd::restore_snapshot() {
  revision_ = snapshot_.revision;
  compacted_ = 0;
  entries_ = snapshot_.entries;
  changes_.clear();
  for (const auto& [key, entry] : entries_) changes_[key] = entry.mod_revision;
  leases_.clear();
  for (const auto& [id, lease] : snapshot_.leases) extend(id, lease.seconds);
  const auto open = std::exchange(watches_, {});
  for (const auto& [id, watch] : open) watch.on_line({{"result", {{"header", header()}, {"canceled", true}}}});
}

void FakeEtcd::compact() {
  compacted_ = ++revision_;
  const auto open = std::exchange(watches_, {});
  for (const auto& [id, watch] : open) {
    watch.on_line(
        {{"result", {{"header", header()}, {"canceled", true}, {"compact_revision", std::to_string(compacted_)}}}});
  }
}

FakeEtcd::Answer FakeEtcd::refuse(int status, int code, const std::string& text) const {
  return {status, {{"error", text}, {"message", text}, {"code", code}}};
}

Json FakeEtcd::range(const Json& request) const {
  Json kvs = Json::array();
  for (const std::string& key : keys_in(bytes(request, "key"), bytes(request, "range_end"))) {
    const Entry& entry = entries_.at(key);
    Json kv{{"key", to_base64(key)},
            {"create_revision", std::to_string(entry.create_revision)},
            {"mod_revision", std::to_string(entry.mod_revision)}};
    if (!request.value("keys_only", false)) kv["value"] = to_base64(entry.value);
    kvs.push_back(std::move(kv));
  }
  Json answer{{"header", header()}};
  if (!kvs.empty()) answer["kvs"] = std::move(kvs);
  return answer;
}

bool FakeEtcd::holds(const Json& compare) const {
  const std::vector<std::string> keys = keys_in(bytes(compare, "key"), bytes(compare, "range_end"));
  const bool is_create = compare.at("target") == "CREATE";
  const int64_t wanted = number(compare, is_create ? "create_revision" : "mod_revision");
  const bool is_greater = compare.at("result") == "GREATER";
  const auto fits = [&](int64_t revision) { return is_greater ? revision > wanted : revision == wanted; };
  if (keys.empty()) return fits(0);
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
    const Entry& entry = entries_.at(key);
    return fits(is_create ? entry.create_revision : entry.mod_revision);
  });
}

FakeEtcd::Answer FakeEtcd::transact(const Json& request) {
  bool succeeded = true;
  for (const Json& compare : request.value("compare", Json::array())) succeeded = succeeded && holds(compare);
  const Json operations = request.value(succeeded ? "success" : "failure", Json::array());
  bool writes = false;
  for (const Json& operation : operations) {
    writes = writes || !operation.contains("request_range");
    if (!operation.contains("request_put")) continue;
    const int64_t lease = number(operation["request_put"], "lease");
    if (lease != 0 && !leases_.contains(lease)) return refuse(404, 5, "etcdserver: requested lease not found");
  }
  if (writes) ++revision_;
  Json responses = Json::array();
  for (const Json& operation : operations) {
    if (operation.contains("request_range")) {
      responses.push_back({{"response_range", range(operation["request_range"])}});
    } else if (operation.contains("request_put")) {
      const Json& put = operation["request_put"];
      put_entry(bytes(put, "key"), bytes(put, "value"), number(put, "lease"));
      responses.push_back({{"response_put", Json::object()}});
    } else {
      const Json& erased = operation.at("request_delete_range");
      erase_range(bytes(erased, "key"), bytes(erased, "range_end"));
      responses.push_back({{"response_delete_range", Json::object()}});
    }
  }
  Json answer{{"header", header()}, {"responses", std::move(responses)}};
  if (succeeded) answer["succeeded"] = true;
  return {200, std::move(answer)};
}

FakeEtcd::Answer FakeEtcd::handle(const std::string& path, const Json& request, const std::string& token) {
  if (path == "/v3/auth/authenticate") {
    if (request.at("name") != user || request.at("password") != password) {
      return refuse(400, 3, "etcdserver: authentication failed, invalid user ID or password");
    }
    tokens.insert("token." + std::to_string(++next_lease_));
    return {200, {{"header", header()}, {"token", *tokens.rbegin()}}};
  }
  if (!user.empty() && token.empty()) return refuse(400, 3, "etcdserver: user name is empty");
  if (!user.empty() && !tokens.contains(token)) return refuse(401, 16, "etcdserver: invalid auth token");
  if (path == "/v3/kv/txn") {
    const auto first = before;  // the hook may reset itself
    if (first) first(request.dump());
    return transact(request);
  }
  if (path == "/v3/lease/grant") {
    const int64_t id = next_lease_++;
    const int64_t seconds = number(request, "TTL");
    extend(id, seconds);
    return {200, {{"header", header()}, {"ID", std::to_string(id)}, {"TTL", std::to_string(seconds)}}};
  }
  const auto lease = leases_.find(number(request, "ID"));
  if (path == "/v3/lease/keepalive") {
    Json result{{"header", header()}, {"ID", request.at("ID")}};
    if (lease != leases_.end()) {
      extend(lease->first, lease->second.seconds);
      result["TTL"] = std::to_string(lease->second.seconds);
    }
    return {200, {{"result", std::move(result)}}};
  }
  if (path != "/v3/lease/revoke") return {404, "Not Found"};
  if (lease == leases_.end()) return refuse(404, 5, "etcdserver: requested lease not found");
  end_lease(lease->first);
  return {200, {{"header", header()}}};
}

uint64_t FakeEtcd::add_watch(const Json& request, std::function<void(const Json&)> on_line) {
  ++watches_begun;
  const Json& create = request.at("create_request");
  const int64_t start = number(create, "start_revision");
  on_line({{"result", {{"header", header()}, {"created", true}}}});
  if (start <= compacted_) {
    on_line({{"result", {{"header", header()}, {"canceled", true}, {"compact_revision", std::to_string(compacted_)}}}});
    return 0;
  }
  const uint64_t id = next_watch_++;
  watches_[id] = {bytes(create, "key"), bytes(create, "range_end"), on_line};
  if (has_changed_since(bytes(create, "key"), bytes(create, "range_end"), start)) {
    on_line({{"result", {{"header", header()}, {"events", Json::array({Json()})}}}});
  }
  return id;
}

// ---- FakeHttp ----

void FakeHttp::after(Nanos time, std::function<void()> what) {
  etcd_.scheduler().at(deadline_after(etcd_.scheduler().now(), time),
                       [alive = std::weak_ptr<char>(alive_), what = std::move(what)] {
                         if (!alive.expired()) what();
                       });
}

uint64_t FakeHttp::send(HttpRequest request) {
  const uint64_t id = next_++;
  if (is_stopped_) return id;
  if (request.timeout != kNever) {
    after(request.timeout, [this, id] { answer(id, {HttpAnswer::Outcome::kUnreachable, 0, "", "no answer in time"}); });
  }
  open_[id].request = std::move(request);
  after(etcd_.scheduler().between(kMillisecond, 3 * kMillisecond), [this, id] { arrive(id); });
  return id;
}

void FakeHttp::cancel(uint64_t id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  if (found->second.watch != 0) etcd_.remove_watch(found->second.watch);
  open_.erase(found);
}

void FakeHttp::stop() {
  is_stopped_ = true;
  while (!open_.empty()) cancel(open_.begin()->first);
}

void FakeHttp::arrive(uint64_t id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  const HttpRequest& request = found->second.request;
  const auto [server, path] = split(request.url);
  etcd_.asked.push_back(server + path);
  if (etcd_.is_memory_short) return answer(id, {HttpAnswer::Outcome::kNoMemory, 0, "", "out of memory"});
  if (etcd_.mute.contains(server)) return;
  if (etcd_.down.contains(server)) {
    return answer(id, {HttpAnswer::Outcome::kUnreachable, 0, "", "Couldn't connect to server"});
  }
  if (const auto wrong = etcd_.garbage.find(server); wrong != etcd_.garbage.end()) {
    return answer(id, {HttpAnswer::Outcome::kAnswered, 200, wrong->second, ""});
  }
  const Json json = Json::parse(request.body);
  if (path == "/v3/watch") {
    const uint64_t watch = etcd_.add_watch(json, [this, id, line = request.read_line](const Json& said) {
      after(kMillisecond, [this, id, line, text = said.dump()] {
        if (!open_.contains(id)) return;
        if (Task task = line(text)) loop_.post_or_drop(std::move(task));
      });
    });
    open_.at(id).watch = watch;
    return;
  }
  const FakeEtcd::Answer said = etcd_.handle(path, json, request.token);
  if (etcd_.loses_answer && etcd_.loses_answer(path)) {
    return answer(id, {HttpAnswer::Outcome::kUnreachable, 0, "", "Recv failure"});
  }
  after(kMillisecond, [this, id, said] {
    answer(id, {HttpAnswer::Outcome::kAnswered, said.status, said.body.dump(), ""});
  });
}

void FakeHttp::answer(uint64_t id, const HttpAnswer& answer) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  const HttpRequest request = std::move(found->second.request);
  open_.erase(found);
  if (Task task = request.read(answer)) loop_.post_or_drop(std::move(task));
}

}  // namespace distag::testing
