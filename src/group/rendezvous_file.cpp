#include "group/rendezvous_file.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/each_step.h"
#include "base/lock_file.h"
#include "base/regular_file.h"
#include "group/group_record.h"
#include "group/joining.h"

namespace distag {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kFirstLook = 2 * kMillisecond;
constexpr Nanos kLongestLook = 50 * kMillisecond;
constexpr const char* kScheme = "file://";

// Bytes of the lock file that are locked.
constexpr uint64_t kMutex = 0;
constexpr uint64_t kFirstSeat = 1;

std::optional<GroupRecord> read_group(const fs::path& path) {
  const std::optional<std::string> text = read_regular_file(path.string());
  if (!text) return std::nullopt;
  try {
    return read_group_record(*text);
  } catch (...) {
    throw current_error().add_context(fmt::format("\"{}\" is no file of a rendezvous", path.string()));
  }
}

// The record of the group is in a single file. Joining workers write it while they hold the first byte of a lock file,
// and waiting workers read it. Each member keeps a byte of the lock file locked as long as it lives, which shows that
// its place is taken; so a directory that a killed job has left needs no cleaning. The last member that leaves removes
// both files.
class FileJoining final : public JoiningElsewhere {
 public:
  FileJoining(const std::string& uri, Loop& loop, Log& log)
      : JoiningElsewhere(loop, log, uri), directory_(uri.substr(std::string(kScheme).size())) {}
  ~FileJoining() override { leave(); }

  void look_up(Incarnation incarnation, Answer answer) override {
    answer(rank_table(read_group(group_path())).find(incarnation));
  }

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

  Error awaited() override {
    Error error = missing_error(uri(), {}, request().world_size);
    try {
      error = rank_table(read_group(group_path())).missing_error();
    } catch (...) {
      // The text without the missing ranks is enough.
    }
    return error;
  }
  void on_deadline() override { leave(); }

  fs::path group_path() const { return directory_ / "group"; }
  fs::path lock_path() const { return directory_ / "lock"; }

  void go_on() {
    if (is_over()) return;
    try {
      if (rank_ < 0) come_in();
      if (rank_ >= 0) look_whether_met();
    } catch (...) {
      leave();
      Error error = current_error();
      const std::string where = fmt::format("rendezvous \"{}\"", uri());
      if (!error.message().starts_with(where)) error.add_context(where);
      give_up(std::move(error));
    }
    if (is_over()) return;
    pause_ = next_pause(pause_, kFirstLook, kLongestLook);
    set_timer(deadline_after(loop_.now(), pause_), [this] { go_on(); });
  }

  // Does nothing while another process holds the mutex.
  void come_in() {
    if (!enter()) return;
    std::optional<GroupRecord> record = read_group(group_path());
    if (record && rank_table(record).is_deserted()) record.reset();
    const wire::Join join = join_message();
    RankTable group = rank_table(record);
    check(group, record, join);
    group.add(join.member);
    take_seat(group);
    write_group({join.job, join.protocol, join.world_size, group.book()});
    lock_.unlock(kMutex);
  }

  // Throws when this worker may not join; those who wait for it find the reason in the record.
  void check(RankTable& group, std::optional<GroupRecord>& record, const wire::Join& join) {
    try {
      if (record) check_same_group(uri(), *record, join);
      group.check(join);
    } catch (...) {
      const Error why = current_error();
      EachStep each;
      each([&] {
        if (record && note_refused(uri(), *record, join, why)) write_group(*record);
      });
      throw why;
    }
  }

  // Takes the mutex, whose file must not have been removed meanwhile. Returns false to try again.
  bool enter() {
    if (!lock_.is_open()) lock_.open(lock_path().string());
    if (lock_.try_lock(kMutex) && lock_.is_at_its_path()) return true;
    if (!lock_.is_at_its_path()) lock_.close();
    return false;
  }

  // Members that have died or left are removed.
  RankTable rank_table(const std::optional<GroupRecord>& record) const {
    RankTable group(uri(), request().job, request().world_size, record ? record->book : RankTable::Book());
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

  void write_group(const GroupRecord& record) {
    const fs::path draft = directory_ / "draft";
    write_regular_file(draft.string(), write_group_record(record));
    std::error_code error;
    fs::rename(draft, group_path(), error);
    if (error) fail(Status::kInvalidState, "\"{}\" cannot be replaced: {}", group_path().string(), error.message());
  }

  void look_whether_met() {
    const std::optional<GroupRecord> record = read_group(group_path());
    if (!record) return;
    const RankTable group = rank_table(record);
    if (!group.has_met()) return;
    check_members(group.members());
    succeed(group.members());
  }

  void leave() {
    if (!lock_.is_open()) return;
    if (rank_ >= 0) lock_.unlock(kFirstSeat + static_cast<uint64_t>(std::exchange(rank_, -1)));
    try {
      // A process that held the mutex may have looked before this seat was free: each looks again after it has
      // unlocked.
      while (enter() && !remove_deserted()) {
        lock_.unlock(kMutex);
        if (!rank_table(read_group(group_path())).is_deserted()) break;
      }
    } catch (...) {
      // The files stay then, and the next job finds no member there.
    }
    lock_.close();
  }

  // Requires the mutex. Returns true if no member was there, so that the files are removed.
  bool remove_deserted() {
    if (!rank_table(read_group(group_path())).is_deserted()) return false;
    std::error_code ignored;
    fs::remove(group_path(), ignored);
    fs::remove(lock_path(), ignored);
    return true;
  }

  const fs::path directory_;
  LockFile lock_;
  int32_t rank_ = -1;  // set once it has a seat
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
