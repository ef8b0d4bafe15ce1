#include "group/rendezvous_etcd.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "group/etcd_client.h"
#include "group/etcd_lease.h"
#include "group/etcd_messages.h"
#include "group/joining.h"

namespace distag {
namespace {

constexpr Nanos kPoll = 2 * kSecond;                 // polling for changes that a watch has missed
constexpr Nanos kWatchPause = 500 * kMillisecond;    // from the start of one watch to the start of the next
constexpr Nanos kFirstRacePause = 2 * kMillisecond;  // for workers that joined at the same time
constexpr Nanos kLongestRacePause = 100 * kMillisecond;
constexpr Nanos kPauseOfMember = 5 * kSecond;  // for a member that etcd refuses
constexpr Nanos kPauseOfCall = kSecond;        // until a call is checked for being overdue
constexpr std::ptrdiff_t kMostInOne = 64;      // entries that one transaction removes
constexpr size_t kMostAskedInEtcd = 4096;
constexpr const char* kTransaction = "/v3/kv/txn";

// Members that are gone, whose places in etcd have to be freed. A member that has just come back may itself have been
// gone for the others: until its lease would have run out it frees no place.
class GonePlaces {
 public:
  explicit GonePlaces(const Loop& loop) : loop_(loop) {}

  bool are_there() const { return !gone_.empty(); }
  // Returns false while removals are held back.
  bool add(Incarnation incarnation) {
    if (loop_.now() < removes_from_) return false;
    gone_.push_back(incarnation);
    return true;
  }
  std::vector<Incarnation> first() const {
    return {gone_.begin(), gone_.begin() + std::min(std::ssize(gone_), kMostInOne)};
  }
  void drop(size_t count) { gone_.erase(gone_.begin(), gone_.begin() + static_cast<std::ptrdiff_t>(count)); }
  void drop_all() { gone_.clear(); }
  void hold_back(Nanos time) {
    gone_.clear();
    removes_from_ = deadline_after(loop_.now(), time);
  }

 private:
  const Loop& loop_;
  std::vector<Incarnation> gone_;
  Nanos removes_from_ = 0;
};

// When the watch of etcd is due, as it ends with each change of server, and whether it has reported news.
class EtcdWatch {
 public:
  explicit EtcdWatch(const Loop& loop) : loop_(loop) {}

  bool is_due(const EtcdClient& client) const { return !client.is_watching() && loop_.now() >= next_; }
  Nanos next(const EtcdClient& client) const { return client.is_watching() ? kNever : next_; }
  void begin(EtcdClient& client, std::string body) {
    next_ = deadline_after(loop_.now(), kWatchPause);
    client.watch(std::move(body));
  }
  // Another watch may begin at once.
  void end(EtcdClient& client) {
    client.end_watch();
    next_ = 0;
  }
  void note_news() { has_news_ = true; }
  void forget_news() { has_news_ = false; }
  bool has_news() const { return has_news_; }

 private:
  const Loop& loop_;
  Nanos next_ = 0;
  bool has_news_ = false;
};

// Repeats these steps one at a time: a lease, its renewal, the places of lost members, a look at the group; then the
// step that follows from the look.
class EtcdJoining final : public JoiningElsewhere {
 public:
  EtcdJoining(const std::string& uri, EtcdSettings settings, Loop& loop, Transport& transport, Log& log,
              HttpClient& http)
      : JoiningElsewhere(loop, log, uri),
        settings_(std::move(settings)),
        transport_(transport),
        http_(http),
        lease_(loop),
        gone_(loop),
        watch_(loop) {}
  ~EtcdJoining() override { leave(); }

  void on_gone(Incarnation incarnation) override {
    assert_on_loop(loop_);
    if (is_member_ && gone_.add(incarnation)) go_on();
  }

  void look_up(Incarnation incarnation, Answer answer) override {
    assert_on_loop(loop_);
    if (!is_member_) return answer(std::nullopt);
    if (asked_.size() >= kMostAskedInEtcd) return;
    asked_.emplace_back(incarnation, std::move(answer));
    go_on();
  }

 private:
  void begin() override;
  Error awaited() override;
  void on_deadline() override { leave(); }

  bool is_done() const { return is_over() && !is_member_; }
  Incarnation self() const { return request().self.incarnation; }
  const std::string& prefix() const { return client_->prefix(); }

  // Each step ends with a call, with wait(), or with the outcome.
  void go_on();
  void remove_gone();
  void look();
  void on_view(etcd::View view, size_t asked);
  void answer_first(size_t count);
  void meet();
  void come_in();
  void come_back(std::optional<std::string> group);
  void keep_place();
  void give_up_place();
  void wait();

  void refuse(const wire::Join& join, std::optional<GroupRecord> group, const Error& error);
  void enter(etcd::Entry entry);
  void become_member(const RankTable& table);
  void fail_for(Error error);
  void on_failed(Nanos pause, const Error& error);
  void on_refused(Error error);
  void leave();

  RankTable table() const;
  const RankTable::Seat* own_seat() const;
  bool is_here() const { return view_->here.contains(self()); }

  EtcdSettings settings_;
  Transport& transport_;
  HttpClient& http_;
  std::optional<EtcdClient> client_;
  EtcdLease lease_;
  std::optional<etcd::View> view_;  // from the last look
  RankTable::Book known_;           // for a member: the group, even if etcd loses its record
  GonePlaces gone_;
  std::vector<std::pair<Incarnation, Answer>> asked_;
  std::optional<Error> refusal_;  // because of a rival whose lease may run out
  Nanos patience_ = 0;            // deadline for the rival
  bool may_be_in_ = false;        // the entry was sent
  bool is_member_ = false;
  bool is_cut_off_ = false;  // a member that no server answers
  EtcdWatch watch_;
  Nanos pause_ = 0;
};

void EtcdJoining::begin() {
  try {
    transport_.check_endpoint(request().self.endpoint);
  } catch (...) {
    throw current_error().add_context(fmt::format("rendezvous \"{}\"", uri()));
  }
  EtcdClient::Events events;
  events.on_failed = [this](Nanos pause, const Error& error) { on_failed(pause, error); };
  events.on_refused = [this](const Error& error) { on_refused(error); };
  events.on_no_lease = [this] {
    lease_.lose();
    go_on();
  };
  events.on_news = [this] {
    watch_.note_news();
    go_on();
  };
  client_.emplace(std::move(settings_), loop_, http_, self(), std::move(events));
  go_on();
}

Error EtcdJoining::awaited() {
  Error error = missing_error(uri(), {}, request().world_size);
  if (refusal_) {
    error = *refusal_;
  } else if (client_->has_failed() || !view_) {
    error = Error(Status::kDeadline,
                  fmt::format("rendezvous \"{}\": time was up before etcd had answered, of whose servers the most have "
                              "to run: {}",
                              uri(), client_->describe()));
  } else {
    error = table().missing_error();
  }
  return error;
}

void EtcdJoining::go_on() {
  if (is_done()) return;
  set_timer(deadline_after(loop_.now(), kPauseOfCall), [this] { go_on(); });
  if (client_->is_calling()) return;
  watch_.forget_news();
  try {
    if (lease_.id() == 0) return lease_.take(*client_, [this] { go_on(); });
    if (lease_.is_due()) return lease_.renew(*client_, [this] { go_on(); });
    if (gone_.are_there()) return remove_gone();
    look();
  } catch (...) {
    fail_for(current_error());
  }
}

// Does nothing if the entry of this member is missing: come_back() has the reason.
void EtcdJoining::remove_gone() {
  const std::vector<Incarnation> some = gone_.first();
  client_->call(kTransaction, etcd::remove(prefix(), self(), some),
                [this, count = some.size()](const std::string& body) {
                  return [this, count, is_here = etcd::read_succeeded(body)] {
                    is_here ? gone_.drop(count) : gone_.drop_all();
                    go_on();
                  };
                });
}

void EtcdJoining::look() {
  const bool is_revision_enough = is_member_ && asked_.empty();
  client_->call(
      kTransaction, is_revision_enough ? etcd::read_group_without(prefix(), self()) : etcd::read_group(prefix()),
      [this, prefix = prefix(), asked = asked_.size()](const std::string& body) -> Task {
        return [this, asked, view = etcd::read_view(prefix, body)]() mutable { on_view(std::move(view), asked); };
      });
}

// `asked`: the number of questions that had come before the look.
void EtcdJoining::on_view(etcd::View view, size_t asked) {
  if (std::exchange(is_cut_off_, false)) {
    log_.write(LogLevel::kInfo, fmt::format("rendezvous \"{}\": etcd answers again", uri()));
  }
  try {
    if (!view.is_whole) {  // the entry of this member is in its place
      view_->revision = view.revision;
      return wait();
    }
    view_ = std::move(view);
    answer_first(asked);
    is_member_ ? keep_place() : meet();
  } catch (...) {
    fail_for(current_error());
  }
}

void EtcdJoining::answer_first(size_t count) {
  const auto end = asked_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<std::pair<Incarnation, Answer>> answered(std::make_move_iterator(asked_.begin()),
                                                       std::make_move_iterator(end));
  asked_.erase(asked_.begin(), end);
  const RankTable group = table();
  for (auto& [incarnation, answer] : answered) answer(group.find(incarnation));
}

// ---- before the group has met ----

void EtcdJoining::meet() {
  const RankTable::Seat* const seat = own_seat();
  if (seat == nullptr) return come_in();
  const bool has_met = table().has_met();
  if (is_here()) return has_met ? become_member(table()) : wait();
  has_met ? come_back(std::nullopt) : come_in();
}

void EtcdJoining::come_in() {
  const wire::Join join = join_message();
  etcd::Entry entry;
  entry.group_revision = view_->group_revision;
  std::optional<GroupRecord> group = view_->group;
  if (group && table().is_deserted()) {
    group.reset();
    view_->group.reset();
    entry.is_first = true;
  }
  if (group) {
    try {
      check_same_group(uri(), *group, join);
    } catch (...) {
      return refuse(join, std::move(group), current_error());
    }
  }
  RankTable table = this->table();
  try {
    table.check(join);
  } catch (...) {
    refusal_ = current_error();
    if (table.find_rival(join.member) == nullptr) return refuse(join, std::move(group), *refusal_);
    if (patience_ == 0) patience_ = deadline_after(loop_.now(), lease_.time() + kSecond);
    if (loop_.now() >= patience_) return refuse(join, std::move(group), *refusal_);
    return wait();
  }
  refusal_.reset();
  patience_ = 0;
  for (const auto& [rank, seat] : table.book().seats) {
    const bool is_replaced = rank == join.member.rank || seat.peer.name == join.member.name;
    if (is_replaced && seat.peer.incarnation != self()) entry.gone.push_back(seat.peer.incarnation);
  }
  table.add(join.member);
  entry.group = write_group_record({join.job, join.protocol, join.world_size, table.book()});
  enter(std::move(entry));
}

// The record names this worker to the others, which will miss it.
void EtcdJoining::refuse(const wire::Join& join, std::optional<GroupRecord> group, const Error& error) {
  refusal_ = error;
  if (!group || !note_refused(uri(), *group, join, error)) return fail_for(error);
  client_->call(kTransaction, etcd::replace_group(prefix(), view_->group_revision, write_group_record(*group)),
                [this, error](const std::string& body) -> Task {
                  return [this, error, is_told = etcd::read_succeeded(body)] { is_told ? fail_for(error) : go_on(); };
                });
}

void EtcdJoining::enter(etcd::Entry entry) {
  entry.self = self();
  entry.lease = lease_.id();
  may_be_in_ = true;
  client_->call(kTransaction, etcd::enter(prefix(), entry), [this](const std::string& body) -> Task {
    return [this, is_in = etcd::read_succeeded(body)] {
      if (is_in) {
        pause_ = 0;
        return go_on();
      }
      // Another worker was faster. Workers that join at the same time spread out.
      pause_ = next_pause(pause_, kFirstRacePause, kLongestRacePause);
      const Nanos spread = static_cast<Nanos>(self() % 16) * pause_ / 16;
      set_timer(deadline_after(loop_.now(), pause_ + spread), [this] { go_on(); });
    };
  });
}

void EtcdJoining::become_member(const RankTable& table) {
  std::vector<Peer> members = table.members();
  check_members(members);
  for (const Peer& peer : members) {
    try {
      transport_.check_endpoint(peer.endpoint);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {
      fail(Status::kProtocol, "rendezvous \"{}\": the endpoint of worker \"{}\" is invalid: {}", uri(), peer.name,
           current_error().message());
    }
  }
  is_member_ = true;
  known_ = table.book();
  patience_ = 0;
  watch_.end(*client_);
  succeed(std::move(members));
  wait();
}

// ---- a member ----

// The entry was missing: the lease has run out, others have lost this member, or etcd was restored from an older
// snapshot, which may have another record, or none. Workers of that time seem to be here until their leases have run
// out.
void EtcdJoining::keep_place() {
  const RankTable::Book found = view_->group ? view_->group->book : RankTable::Book();
  Restored restored = restore(known_, found, view_->here);
  const auto has_it = [this](const auto& entry) { return entry.second.peer.incarnation == self(); };
  if (std::none_of(restored.book.seats.begin(), restored.book.seats.end(), has_it)) return give_up_place();
  if (restored.is_contested) {
    if (patience_ == 0) patience_ = deadline_after(loop_.now(), lease_.time() + kSecond);
    return loop_.now() < patience_ ? wait() : give_up_place();
  }
  patience_ = 0;
  known_ = std::move(restored.book);
  if (restored.has_news) {
    log_.write(
        LogLevel::kWarning,
        fmt::format("rendezvous \"{}\": etcd has forgotten workers of the group, as one that was restored from an "
                    "older snapshot: they are put back",
                    uri()));
    return come_back(write_group_record({request().job, wire::kProtocolVersion, request().world_size, known_}));
  }
  if (is_here()) return wait();
  come_back(std::nullopt);
}

void EtcdJoining::give_up_place() {
  log_.write(LogLevel::kWarning,
             fmt::format("rendezvous \"{}\": the place of this worker was free for a while, and another one has taken "
                         "it: who joins from now on does not learn of this one; start it anew",
                         uri()));
  may_be_in_ = false;
  leave();
}

// The others may have lost this member while it was stopped; members that it loses now may live. For the time of a
// lease it frees no member's place; the leases of members that are really gone run out in that time.
void EtcdJoining::come_back(std::optional<std::string> group) {
  gone_.hold_back(lease_.time());
  etcd::Entry entry;
  entry.group = std::move(group);
  entry.group_revision = view_->group_revision;
  enter(std::move(entry));
}

// ---- both ----

void EtcdJoining::wait() {
  if (is_done()) return;
  if (watch_.has_news() || gone_.are_there() || !asked_.empty()) return go_on();
  if (watch_.is_due(*client_)) {
    const int64_t seen = view_->revision;
    watch_.begin(*client_,
                 is_member_ ? etcd::watch_member(prefix(), self(), seen) : etcd::watch_members(prefix(), seen));
  }
  Nanos next = std::min(lease_.renewal(), watch_.next(*client_));
  if (!is_member_) next = std::min({next, deadline_after(loop_.now(), kPoll), patience_ == 0 ? kNever : patience_});
  set_timer(std::max(next, loop_.now()), [this] { go_on(); });
}

void EtcdJoining::on_failed(Nanos pause, const Error& error) {
  if (!is_member_ && error.status() == Status::kOutOfMemory) return on_refused(error);
  if (is_member_ && pause > 0 && !std::exchange(is_cut_off_, true)) {
    log_.write(LogLevel::kWarning,
               fmt::format("rendezvous \"{}\": etcd does not answer ({}); the group goes on, but no worker can join "
                           "it meanwhile",
                           uri(), client_->describe()));
  }
  set_timer(deadline_after(loop_.now(), pause), [this] { go_on(); });
}

void EtcdJoining::on_refused(Error error) { fail_for(error.add_context(fmt::format("rendezvous \"{}\"", uri()))); }

// A member keeps its group, whatever etcd answers.
void EtcdJoining::fail_for(Error error) {
  if (is_member_) {
    if (!std::exchange(is_cut_off_, true)) log_.write(LogLevel::kWarning, error.message());
    set_timer(deadline_after(loop_.now(), kPauseOfMember), [this] { go_on(); });
    return;
  }
  leave();
  give_up(std::move(error));
}

// The requests sent here go out even after this object is gone.
void EtcdJoining::leave() {
  is_member_ = false;
  cancel_timer();
  if (!client_) return;
  client_->drop();
  if (lease_.id() == 0) return;
  if (may_be_in_) client_->say(kTransaction, etcd::leave(prefix(), self()));
  lease_.give_up(*client_);
}

// The table of the last look: members whose entry is missing are gone.
RankTable EtcdJoining::table() const {
  RankTable::Book book = view_->group ? view_->group->book : RankTable::Book();
  for (auto& [rank, seat] : book.seats) seat.is_gone = false;
  RankTable table(uri(), request().job, request().world_size, book);
  for (const auto& [rank, seat] : book.seats) {
    if (!view_->here.contains(seat.peer.incarnation)) table.remove(seat.peer.incarnation);
  }
  return table;
}

const RankTable::Seat* EtcdJoining::own_seat() const {
  if (!view_->group) return nullptr;
  for (const auto& [rank, seat] : view_->group->book.seats) {
    if (seat.peer.incarnation == self()) return &seat;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Rendezvous> make_etcd_rendezvous(const std::string& uri, EtcdSettings settings, Loop& loop,
                                                 Transport& transport, Log& log, HttpClient& http) {
  return std::make_unique<EtcdJoining>(uri, std::move(settings), loop, transport, log, http);
}

}  // namespace distag
