#include "group/rendezvous_inproc.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/process.h"
#include "group/joining.h"

namespace distag {
namespace {

class InprocJoining;

struct Group {
  explicit Group(RankTable rank_table_) : rank_table(std::move(rank_table_)) {}
  RankTable rank_table;
  std::map<Incarnation, InprocJoining*> here;
};

// The groups of this process, by uri; there only while they have members. A forked child sees none of its parent's. An
// entry and the object that it points to go together under the mutex, so posts to the loops of others are made while it
// is held.
using Key = std::pair<uint32_t, std::string>;  // process_generation(), uri
Mutex g_mutex;
std::map<Key, Group>* g_groups GUARDED_BY(g_mutex) = nullptr;

class InprocJoining final : public Joining {
 public:
  InprocJoining(const std::string& uri, Loop& loop, Log& log)
      : Joining(loop, log, uri), key_(process_generation(), uri) {}
  ~InprocJoining() override { withdraw(); }

  void look_up(Incarnation incarnation, Answer answer) override {
    std::optional<Peer> found;
    {
      MutexLock lock(g_mutex);
      if (Group* group = find_group()) found = group->rank_table.find(incarnation);
    }
    answer(found);
  }

 private:
  void begin() override {
    const wire::Join join = join_message();
    MutexLock lock(g_mutex);
    if (g_groups == nullptr) g_groups = new std::map<Key, Group>;
    Group& group = g_groups->try_emplace(key_, RankTable(uri(), request().job, request().world_size)).first->second;
    try {
      group.rank_table.check(join);
    } catch (...) {
      group.rank_table.note_refused(join.member, current_error());
      if (group.here.empty()) forget_group();
      throw;
    }
    const bool had_met = group.rank_table.has_met();
    group.rank_table.add(join.member);
    group.here.emplace(join.member.incarnation, this);
    if (had_met) return post_members(group.rank_table.members());
    if (!group.rank_table.has_met()) return;
    for (const auto& [incarnation, joining] : group.here) joining->post_members(group.rank_table.members());
  }

  Error awaited() override {
    Error error = missing_error(uri(), {}, request().world_size);
    {
      MutexLock lock(g_mutex);
      if (Group* group = find_group()) error = group->rank_table.missing_error();
    }
    return error;
  }
  void on_deadline() override { withdraw(); }

  Group* find_group() const REQUIRES(g_mutex) {
    if (g_groups == nullptr) return nullptr;
    const auto found = g_groups->find(key_);
    return found == g_groups->end() ? nullptr : &found->second;
  }

  void forget_group() REQUIRES(g_mutex) {
    g_groups->erase(key_);
    if (g_groups->empty()) delete std::exchange(g_groups, nullptr);
  }

  void post_members(const std::vector<Peer>& members) {
    loop_.post_or_drop([this, alive = alive(), members] {
      if (!alive.expired()) succeed(members);
    });
  }

  void withdraw() {
    MutexLock lock(g_mutex);
    Group* group = find_group();
    if (group == nullptr) return;
    const Incarnation self = request().self.incarnation;
    const auto here = group->here.find(self);
    if (here == group->here.end() || here->second != this) return;
    group->here.erase(here);
    group->rank_table.remove(self);
    if (group->here.empty()) forget_group();
  }

  const Key key_;
};

}  // namespace

std::unique_ptr<Rendezvous> make_inproc_rendezvous(const std::string& uri, Loop& loop, Log& log) {
  return std::make_unique<InprocJoining>(uri, loop, log);
}

}  // namespace distag
