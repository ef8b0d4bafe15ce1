#include "group/etcd_messages.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/base64.h"
#include "base/error.h"
#include "base/plain_numbers.h"

namespace distag::etcd {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestToken = 8192;
constexpr size_t kLongestRefusal = 200;

[[noreturn]] void fail_answer() { fail(Status::kProtocol, "its answer is not one of etcd v3"); }

Json parse(std::string_view text) {
  const PlainNumbers numbers;
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) fail_answer();
  return json;
}

// nullptr: there is no such key.
const Json* find(const Json& json, const char* key) {
  if (!json.is_object()) fail_answer();
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

const Json& member_of(const Json& json, const char* key) {
  const Json* const found = find(json, key);
  if (found == nullptr) fail_answer();
  return *found;
}

// JSON has 64-bit numbers as text, and omits zero.
int64_t number_of(const Json& json, const char* key) {
  const Json* const value = find(json, key);
  if (value == nullptr) return 0;
  int64_t number = 0;
  if (value->is_string()) {
    const auto& digits = value->get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size()) fail_answer();
  } else if (value->is_number_integer() && !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)) {
    number = value->get<int64_t>();
  } else {
    fail_answer();
  }
  if (number < 0) fail_answer();
  return number;
}

bool flag_of(const Json& json, const char* key) {
  const Json* const value = find(json, key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) fail_answer();
  return value->get<bool>();
}

std::string bytes_of(const Json& json, const char* key) {
  const Json* const value = find(json, key);
  if (value == nullptr) return {};
  std::optional<std::string> bytes;
  if (value->is_string()) bytes = from_base64(value->get_ref<const std::string&>());
  if (!bytes) fail_answer();
  return *bytes;
}

// Replaces all but printable characters in a text from the server.
std::string printable(std::string text) {
  if (text.size() > kLongestRefusal) text.resize(kLongestRefusal);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

std::string text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// ---- keys ----

std::string group_key(const std::string& prefix) { return prefix + "/group"; }
std::string first_member_key(const std::string& prefix) { return prefix + "/member/"; }
std::string end_of_member_keys(const std::string& prefix) { return prefix + "/member0"; }  // '0' comes after '/'
std::string member_key(const std::string& prefix, Incarnation member) {
  return fmt::format("{}{:016x}", first_member_key(prefix), member);
}

Incarnation member_of_key(const std::string& prefix, const std::string& key) {
  const std::string first = first_member_key(prefix);
  Incarnation member = 0;
  if (key.starts_with(first) && key.size() == first.size() + 16) {
    const auto [end, error] = std::from_chars(key.data() + first.size(), key.data() + key.size(), member, 16);
    if (error != std::errc() || end != key.data() + key.size()) member = 0;
  }
  if (member == 0 || member_key(prefix, member) != key) {
    fail(Status::kProtocol, "below \"{}\" there are keys of something else", first);
  }
  return member;
}

// ---- parts of transactions ----

Json put(const std::string& key, const std::string& value, int64_t lease) {
  Json request{{"key", to_base64(key)}, {"value", to_base64(value)}};
  if (lease != 0) request["lease"] = std::to_string(lease);
  return Json{{"request_put", std::move(request)}};
}

Json erase(const std::string& key) { return Json{{"request_delete_range", {{"key", to_base64(key)}}}}; }

Json range(const std::string& key, const std::string& end = {}, bool keys_only = false) {
  Json request{{"key", to_base64(key)}};
  if (!end.empty()) request["range_end"] = to_base64(end);
  if (keys_only) request["keys_only"] = true;
  return Json{{"request_range", std::move(request)}};
}

Json is_at_revision(const std::string& key, int64_t revision) {
  return Json{
      {"key", to_base64(key)}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", std::to_string(revision)}};
}

// True if the key, or every key from it to `end`, is absent.
Json is_absent(const std::string& key, const std::string& end = {}) {
  Json compare{{"key", to_base64(key)}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", "0"}};
  if (!end.empty()) compare["range_end"] = to_base64(end);
  return compare;
}

Json is_present(const std::string& key) {
  return Json{{"key", to_base64(key)}, {"target", "CREATE"}, {"result", "GREATER"}, {"create_revision", "0"}};
}

Json whole_group(const std::string& prefix) {
  return Json::array({range(group_key(prefix)), range(first_member_key(prefix), end_of_member_keys(prefix), true)});
}

void read_group_into(View& view, const Json& kvs) {
  if (!kvs.is_array() || kvs.size() > 1) fail_answer();
  if (kvs.empty()) return;
  view.group_revision = number_of(kvs[0], "mod_revision");
  if (view.group_revision == 0) fail_answer();
  view.group = read_group_record(bytes_of(kvs[0], "value"));
}

// `kvs` of one of the two responses; etcd omits an empty list.
Json kvs_of(const Json& responses, size_t which) {
  const Json* const found = find(member_of(responses[which], "response_range"), "kvs");
  return found == nullptr ? Json::array() : *found;
}

}  // namespace

std::string authenticate(const std::string& user, const std::string& password) {
  return text(Json{{"name", user}, {"password", password}});
}

std::string read_token(const std::string& answer) {
  const Json json = parse(answer);
  const Json& value = member_of(json, "token");
  if (!value.is_string()) fail_answer();
  auto token = value.get<std::string>();
  const bool is_sound = !token.empty() && token.size() <= kLongestToken &&
                        std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!is_sound) fail_answer();
  return token;
}

std::string grant(int64_t seconds) { return text(Json{{"TTL", std::to_string(seconds)}}); }

Lease read_lease(const std::string& answer) {
  const Json json = parse(answer);
  const Lease lease{number_of(json, "ID"), number_of(json, "TTL")};
  if (lease.id == 0 || lease.seconds == 0 || lease.seconds > 3600) fail_answer();
  return lease;
}

std::string keep_alive(int64_t lease) { return text(Json{{"ID", std::to_string(lease)}}); }

bool read_is_alive(const std::string& answer) {
  const Json json = parse(answer);
  const Json& result = member_of(json, "result");
  if (!result.is_object()) fail_answer();
  return number_of(result, "TTL") > 0;
}

std::string revoke(int64_t lease) { return keep_alive(lease); }

std::string read_group(const std::string& prefix) { return text(Json{{"success", whole_group(prefix)}}); }

std::string read_group_without(const std::string& prefix, Incarnation self) {
  return text(Json{{"compare", Json::array({is_absent(member_key(prefix, self))})}, {"success", whole_group(prefix)}});
}

View read_view(const std::string& prefix, const std::string& answer) {
  const Json json = parse(answer);
  View view;
  view.revision = number_of(member_of(json, "header"), "revision");
  if (view.revision == 0) fail_answer();
  view.is_whole = flag_of(json, "succeeded");
  if (!view.is_whole) return view;
  const Json& responses = member_of(json, "responses");
  if (!responses.is_array() || responses.size() != 2) fail_answer();
  read_group_into(view, kvs_of(responses, 0));
  const Json members = kvs_of(responses, 1);
  if (!members.is_array()) fail_answer();
  for (const Json& member : members) view.here.insert(member_of_key(prefix, bytes_of(member, "key")));
  return view;
}

std::string enter(const std::string& prefix, const Entry& entry) {
  Json compare = Json::array({is_at_revision(group_key(prefix), entry.group_revision)});
  for (const Incarnation gone : entry.gone) compare.push_back(is_absent(member_key(prefix, gone)));
  if (entry.is_first) compare.push_back(is_absent(first_member_key(prefix), end_of_member_keys(prefix)));
  Json success = Json::array({put(member_key(prefix, entry.self), "", entry.lease)});
  if (entry.group) success.push_back(put(group_key(prefix), *entry.group, 0));
  return text(Json{{"compare", std::move(compare)}, {"success", std::move(success)}});
}

std::string replace_group(const std::string& prefix, int64_t group_revision, const std::string& group) {
  return text(Json{{"compare", Json::array({is_at_revision(group_key(prefix), group_revision)})},
                   {"success", Json::array({put(group_key(prefix), group, 0)})}});
}

bool read_succeeded(const std::string& answer) {
  const Json json = parse(answer);
  if (number_of(member_of(json, "header"), "revision") == 0) fail_answer();
  return flag_of(json, "succeeded");
}

std::string leave(const std::string& prefix, Incarnation self) {
  const std::string own = member_key(prefix, self);
  const std::string after = own + '\0';
  return text(Json{{"compare", Json::array({is_absent(first_member_key(prefix), own),
                                            is_absent(after, end_of_member_keys(prefix))})},
                   {"success", Json::array({erase(own), erase(group_key(prefix))})},
                   {"failure", Json::array({erase(own)})}});
}

std::string remove(const std::string& prefix, Incarnation self, const std::vector<Incarnation>& members) {
  Json success = Json::array();
  for (const Incarnation member : members) success.push_back(erase(member_key(prefix, member)));
  return text(Json{{"compare", Json::array({is_present(member_key(prefix, self))})}, {"success", std::move(success)}});
}

std::string watch_members(const std::string& prefix, int64_t after) {
  return text(Json{{"create_request",
                    {{"key", to_base64(first_member_key(prefix))},
                     {"range_end", to_base64(end_of_member_keys(prefix))},
                     {"start_revision", std::to_string(after + 1)}}}});
}

std::string watch_member(const std::string& prefix, Incarnation member, int64_t after) {
  return text(Json{{"create_request",
                    {{"key", to_base64(member_key(prefix, member))}, {"start_revision", std::to_string(after + 1)}}}});
}

News read_news(std::string_view line) {
  const PlainNumbers numbers;
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("result")) return News::kEnd;
  const Json& result = json["result"];
  // Also when the revision is compacted: the watcher reads the group anew.
  if (!result.is_object() || result.contains("canceled")) return News::kEnd;
  return result.contains("events") ? News::kChange : News::kNone;
}

Refusal read_refusal(const std::string& answer) {
  Refusal refusal;
  const PlainNumbers numbers;
  const Json json = Json::parse(answer, nullptr, false);
  if (!json.is_object()) return refusal;
  const Json* const code = find(json, "code");
  if (code != nullptr && code->is_number_integer()) {
    refusal.code = static_cast<int>(std::clamp<int64_t>(code->get<int64_t>(), -1, 1000));
  }
  for (const char* key : {"error", "message"}) {  // the key depends on the version of etcd
    const Json* const said = find(json, key);
    if (said != nullptr && said->is_string()) refusal.text = printable(said->get<std::string>());
  }
  return refusal;
}

}  // namespace distag::etcd
