#include "rpc/rendezvous_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "rpc/joining.h"

namespace distag {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr Nanos kFirstPause = 2 * kMillisecond;
constexpr Nanos kLongestPause = 50 * kMillisecond;
constexpr const char* kScheme = "file://";

Json member_to_json(const wire::Member& member) {
  return Json{{"rank", member.rank},
              {"name", member.name},
              {"endpoint", member.endpoint},
              {"incarnation", member.incarnation},
              {"generation", member.generation}};
}

wire::Member member_from_json(const Json& json) {
  return {json.at("rank").get<int32_t>(), json.at("name").get<std::string>(), json.at("endpoint").get<std::string>(),
          json.at("incarnation").get<uint64_t>(), json.at("generation").get<uint64_t>()};
}

wire::Join join_from_json(const Json& json) {
  wire::Join join;
  join.job = json.at("job").get<std::string>();
  join.protocol = json.at("protocol").get<uint32_t>();
  join.world_size = json.at("world_size").get<int32_t>();
  join.member = member_from_json(json.at("member"));
  return join;
}

std::optional<Json> read_json(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) fail(Status::kProtocol, "\"{}\" is no file of a rendezvous", path.string());
  return json;
}

class FileJoining final : public Joining {
 public:
  FileJoining(const std::string& uri, Loop& loop, Log& log)
      : Joining(loop, log, uri), directory_(uri.substr(std::string(kScheme).size())) {}
  ~FileJoining() override { clean_up(); }

 private:
  void begin() override {
    std::error_code error;
    fs::create_directory(directory_, error);
    if (!fs::is_directory(directory_, error)) {
      fail(Status::kInvalidArgument, "rendezvous \"{}\": \"{}\" is no directory, and cannot be made one", uri(),
           directory_.string());
    }
    try {
      claim();
    } catch (...) {
      clean_up();
      throw;
    }
    poll();
  }

  Error on_deadline() override {
    std::vector<int32_t> missing;
    for (int32_t rank = 0; rank < request().world_size; ++rank) {
      std::error_code error;
      if (!fs::exists(rank_path(rank), error)) missing.push_back(rank);
    }
    Error told = missing_error(uri(), missing, request().world_size);
    clean_up();
    return told;
  }

  fs::path rank_path(int32_t rank) const { return directory_ / fmt::format("rank.{}", rank); }
  fs::path name_path() const { return directory_ / ("name." + request().self.name); }
  fs::path group_path() const { return directory_ / "group"; }

  // Puts a whole file at `path`. False when there is one already.
  bool publish(const fs::path& path, const Json& json) {
    const fs::path draft = directory_ / fmt::format(".draft.{:016x}", request().self.incarnation);
    {
      std::ofstream file(draft, std::ios::binary | std::ios::trunc);
      file << json.dump();
      if (!file.flush()) fail(Status::kInvalidState, "rendezvous \"{}\": cannot write to it", uri());
    }
    std::error_code error;
    std::error_code ignored;
    fs::create_hard_link(draft, path, error);
    fs::remove(draft, ignored);
    if (!error) return true;
    if (error == std::errc::file_exists) return false;
    fail(Status::kInvalidState, "rendezvous \"{}\": cannot make \"{}\": {}", uri(), path.string(), error.message());
  }

  void claim() {
    const char* advice = "a worker that lives has it, or the directory is not empty from an earlier job: clear it then";
    wire::Join join = join_message();
    join.member.generation = 1;
    const Json json{{"job", join.job},
                    {"protocol", join.protocol},
                    {"world_size", join.world_size},
                    {"member", member_to_json(join.member)}};
    if (!publish(rank_path(join.member.rank), json)) {
      fail(Status::kInvalidState, "rendezvous \"{}\": rank {} is in use; {}", uri(), join.member.rank, advice);
    }
    has_rank_ = true;
    if (!publish(name_path(), json)) {
      fail(Status::kInvalidState, "rendezvous \"{}\": the name \"{}\" is in use; {}", uri(), join.member.name, advice);
    }
    has_name_ = true;
  }

  void poll() {
    if (is_over()) return;
    try {
      if (!read_group()) gather();
    } catch (const Json::exception&) {
      clean_up();
      give_up(Error(Status::kProtocol, fmt::format("rendezvous \"{}\": there are files of something else", uri())));
    } catch (...) {
      clean_up();
      give_up(current_error());
    }
    if (is_over()) return;
    pause_ = next_pause(pause_, kFirstPause, kLongestPause);
    set_timer(deadline_after(loop_.now(), pause_), [this] { poll(); });
  }

  // True when there is an outcome.
  bool read_group() {
    const std::optional<Json> json = read_json(group_path());
    if (!json) return false;
    if (json->contains("error")) {
      const Json& error = json->at("error");
      throw Error(static_cast<Status>(error.at("status").get<int32_t>()), error.at("message").get<std::string>());
    }
    std::vector<Peer> members;
    bool has_self = false;
    for (const Json& member : json->at("members")) {
      members.push_back(to_peer(member_from_json(member)));
      has_self = has_self || members.back().incarnation == request().self.incarnation;
    }
    if (!has_self) {
      fail(Status::kInvalidState,
           "rendezvous \"{}\": it is that of a group of {} that has met before; use an empty directory", uri(),
           members.size());
    }
    succeed(std::move(members));
    return true;
  }

  // Looks who has come; who sees the last one come, or two that do not fit, tells all.
  void gather() {
    const size_t before = seen_.size();
    look_for_missing();
    if (seen_.size() == before) return;
    Gathering gathering(uri(), request().job, request().world_size);
    gathering.add(join_message().member);
    try {
      for (const auto& [rank, join] : seen_) {
        gathering.check(join);
        gathering.add(join.member);
      }
    } catch (const Error& error) {
      if (!are_all_still_there()) return;
      const Json told{{"status", static_cast<int32_t>(error.status())}, {"message", error.message()}};
      publish(group_path(), Json{{"error", told}});
      read_group();
      return;
    }
    if (!gathering.is_complete()) return;
    if (!are_all_still_there()) return;
    Json members = Json::array();
    for (const Peer& peer : gathering.members()) members.push_back(member_to_json(to_member(peer)));
    publish(group_path(), Json{{"members", members}});
    read_group();
  }

  void look_for_missing() {
    for (int32_t rank = 0; rank < request().world_size; ++rank) {
      if (seen_.contains(rank)) continue;
      if (const std::optional<Json> json = read_json(rank_path(rank))) seen_.emplace(rank, join_from_json(*json));
    }
  }

  // Forgets those who gave up since they were seen, and those whose place another one has.
  bool are_all_still_there() {
    const size_t before = seen_.size();
    std::erase_if(seen_, [this](const auto& entry) {
      const std::optional<Json> json = read_json(rank_path(entry.first));
      return !json || join_from_json(*json).member.incarnation != entry.second.member.incarnation;
    });
    return seen_.size() == before;
  }

  // Takes away what is ours; the last one that leaves takes the group away.
  void clean_up() {
    std::error_code ignored;
    if (std::exchange(has_name_, false)) fs::remove(name_path(), ignored);
    if (!std::exchange(has_rank_, false)) return;
    fs::remove(rank_path(request().self.rank), ignored);
    for (fs::directory_iterator it(directory_, ignored), end; it != end; it.increment(ignored)) {
      if (it->path().filename().string().starts_with("rank.")) return;
    }
    fs::remove(group_path(), ignored);
  }

  const fs::path directory_;
  bool has_rank_ = false;
  bool has_name_ = false;
  std::map<int32_t, wire::Join> seen_;  // by rank, ourselves included
  Nanos pause_ = 0;
};

}  // namespace

std::unique_ptr<Rendezvous> make_file_rendezvous(const std::string& uri, Loop& loop, Log& log) {
  const std::string path = uri.substr(std::string(kScheme).size());
  if (path.empty() || path.front() != '/') {
    fail(Status::kInvalidArgument, "rendezvous \"{}\": give an absolute path, as in file:///tmp/job", uri);
  }
  return std::make_unique<FileJoining>(uri, loop, log);
}

}  // namespace distag
