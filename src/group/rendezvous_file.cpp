#include "group/rendezvous_file.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/each_step.h"
#include "base/lock_file.h"
#include "base/regular_file.h"
#include "group/joining.h"

namespace distag {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr Nanos kFirstPause = 2 * kMillisecond;
constexpr Nanos kLongestPause = 50 * kMillisecond;
constexpr const char* kScheme = "file://";

// Bytes of the lock file.
constexpr uint64_t kMutex = 0;
constexpr uint64_t kFirstSeat = 1;

Json member_to_json(const wire::Member& member) {
  return Json{{"rank", member.rank},
              {"name", member.name},
              {"endpoint", member.endpoint},
              {"incarnation", member.incarnation},
              {"generation", member.generation},
              {"max_message_bytes", member.max_message_bytes}};
}

wire::Member member_from_json(const Json& json) {
  return {json.at("rank").get<int32_t>(),         json.at("name").get<std::string>(),
          json.at("endpoint").get<std::string>(), json.at("incarnation").get<uint64_t>(),
          json.at("generation").get<uint64_t>(),  json.at("max_message_bytes").get<uint64_t>()};
}

Json book_to_json(const RankTable::Book& book) {
  Json seats = Json::array();
  for (const auto& [rank, seat] : book.seats) {
    Json json = member_to_json(to_member(seat.peer));
    json["is_gone"] = seat.is_gone;
    seats.push_back(std::move(json));
  }
  return Json{{"has_met", book.has_met},
              {"seats", std::move(seats)},
              {"withdrawn", book.withdrawn},
              {"generations", book.generations},
              {"misled", {{"name", book.misled.name}, {"world_size", book.misled.world_size}}}};
}

RankTable::Book book_from_json(const Json& json) {
  RankTable::Book book;
  book.has_met = json.at("has_met").get<bool>();
  for (const Json& seat : json.at("seats")) {
    const wire::Member member = member_from_json(seat);
    book.seats[member.rank] = {to_peer(member), seat.at("is_gone").get<bool>()};
  }
  book.withdrawn = json.at("withdrawn").get<std::set<int32_t>>();
  book.generations = json.at("generations").get<std::map<std::string, uint64_t>>();
  if (json.contains("misled")) {  // a version before this one wrote none
    const Json& misled = json.at("misled");
    book.misled = {misled.at("name").get<std::string>(), misled.at("world_size").get<int32_t>()};
  }
  return book;
}

std::optional<Json> read_json(const fs::path& path) {
  const std::optional<std::string> text = read_regular_file(path.string());
  if (!text) return std::nullopt;
  Json json = Json::parse(*text, nullptr, false);
  if (json.is_discarded()) fail(Status::kProtocol, "\"{}\" is no file of a rendezvous", path.string());
  return json;
}

// One file says what the group is: written by who joins, with the first byte of another file locked, and read by who
// waits. Of that other file each member has a byte of its own locked as long as it lives, by which its place is known
// to be taken; so a directory that a killed job has left needs no clearing. The member that leaves last takes both
// files away.
class FileJoining final : public Joining {
 public:
  FileJoining(const std::string& uri, Loop& loop, Log& log)
      : Joining(loop, log, uri), directory_(uri.substr(std::string(kScheme).size())) {}
  ~FileJoining() override { leave(); }

 private:
  void begin() override {
    std::error_code error;
    fs::create_directory(directory_, error);
    if (!fs::is_directory(directory_, error)) {
      fail(Status::kInvalidArgument, "rendezvous \"{}\": \"{}\" is no directory, and cannot be made one", uri(),
           directory_.string());
    }
    go_on();
  }

  Error on_deadline() override {
    Error error = missing_error(uri(), {}, request().world_size);
    try {
      error = rank_table(read_json(group_path())).missing_error();
    } catch (...) {
      // Whatever it is: time is up.
    }
    leave();
    return error;
  }

  fs::path group_path() const { return directory_ / "group"; }
  fs::path lock_path() const { return directory_ / "lock"; }

  void go_on() {
    if (is_over()) return;
    try {
      if (rank_ < 0) come_in();
      if (rank_ >= 0) look_whether_met();
    } catch (const Json::exception&) {
      leave();
      give_up(Error(Status::kProtocol, fmt::format("rendezvous \"{}\": there are files of something else", uri())));
    } catch (...) {
      leave();
      Error error = current_error();
      const std::string where = fmt::format("rendezvous \"{}\"", uri());
      if (!error.message().starts_with(where)) error.add_context(where);
      give_up(std::move(error));
    }
    if (is_over()) return;
    pause_ = next_pause(pause_, kFirstPause, kLongestPause);
    set_timer(deadline_after(loop_.now(), pause_), [this] { go_on(); });
  }

  // Nothing happens while somebody else is at it.
  void come_in() {
    if (!enter()) return;
    std::optional<Json> json = read_json(group_path());
    if (json && rank_table(json).is_deserted()) json.reset();
    const wire::Join join = join_message();
    if (json) check_group(*json, join);
    RankTable group = rank_table(json);
    group.check(join);
    group.add(join.member);
    take_seat(group);
    write_group(Json{{"job", join.job},
                     {"protocol", join.protocol},
                     {"world_size", join.world_size},
                     {"book", book_to_json(group.book())}});
    lock_.unlock(kMutex);
  }

  // Throws when the others want something else than we do.
  void check_group(Json json, const wire::Join& join) {
    const auto protocol = json.at("protocol").get<uint32_t>();
    if (protocol != join.protocol) {
      fail(Status::kProtocol, "rendezvous \"{}\": this worker speaks version {} of the protocol, the group version {}",
           uri(), join.protocol, protocol);
    }
    const bool is_our_job = join.job == json.at("job");
    if (is_our_job && join.world_size == json.at("world_size")) return;
    RankTable theirs(uri(), json.at("job").get<std::string>(), json.at("world_size").get<int32_t>(),
                     book_from_json(json.at("book")));
    EachStep each;
    each([&theirs, &join] { theirs.check(join); });
    each([&] {  // for those who will miss this worker
      if (!is_our_job) return;
      json["book"] = book_to_json(theirs.book());
      write_group(json);
    });
    each.check();
  }

  // The mutex is had, and nobody has taken its file away meanwhile.
  bool enter() {
    if (!lock_.is_open()) lock_.open(lock_path().string());
    if (lock_.try_lock(kMutex) && lock_.is_at_its_path()) return true;
    if (!lock_.is_at_its_path()) lock_.close();
    return false;
  }

  // Those who have died or left are gone.
  RankTable rank_table(const std::optional<Json>& json) const {
    RankTable group(uri(), request().job, request().world_size,
                    json ? book_from_json(json->at("book")) : RankTable::Book());
    const RankTable::Book book = group.book();
    for (const auto& [rank, seat] : book.seats) {
      const bool is_self = rank_ >= 0 && seat.peer.incarnation == request().self.incarnation;
      const bool is_here = is_self || is_taken(rank);
      if (!is_here) group.remove(seat.peer.incarnation);
    }
    return group;
  }

  bool is_taken(int32_t rank) const { return lock_.is_locked_by_another(kFirstSeat + static_cast<uint64_t>(rank)); }

  void take_seat(const RankTable& group) {
    for (const auto& [rank, seat] : group.book().seats) {
      if (seat.peer.incarnation != request().self.incarnation) continue;
      if (!lock_.try_lock(kFirstSeat + static_cast<uint64_t>(rank))) {
        fail(Status::kInvalidState, "rendezvous \"{}\": another process has locked rank {}", uri(), rank);
      }
      rank_ = rank;
    }
  }

  void write_group(const Json& json) {
    const fs::path draft = directory_ / "draft";
    write_regular_file(draft.string(), json.dump());
    std::error_code error;
    fs::rename(draft, group_path(), error);
    if (error) fail(Status::kInvalidState, "\"{}\" cannot be replaced: {}", group_path().string(), error.message());
  }

  void look_whether_met() {
    const std::optional<Json> json = read_json(group_path());
    if (!json) return;
    const RankTable group = rank_table(json);
    if (group.has_met()) succeed(group.members());
  }

  void leave() {
    if (!lock_.is_open()) return;
    if (rank_ >= 0) lock_.unlock(kFirstSeat + static_cast<uint64_t>(std::exchange(rank_, -1)));
    try {
      // Another one who is at it may have looked before our seat was free: each looks again when it has let go.
      while (enter() && !remove_deserted()) {
        lock_.unlock(kMutex);
        if (!rank_table(read_json(group_path())).is_deserted()) break;
      }
    } catch (...) {
      // Then the files stay, and the next job finds nobody there.
    }
    lock_.close();
  }

  // With the mutex held. Whether nobody was there, so that the files are gone.
  bool remove_deserted() {
    if (!rank_table(read_json(group_path())).is_deserted()) return false;
    std::error_code ignored;
    fs::remove(group_path(), ignored);
    fs::remove(lock_path(), ignored);
    return true;
  }

  const fs::path directory_;
  LockFile lock_;
  int32_t rank_ = -1;  // once it has a seat
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
