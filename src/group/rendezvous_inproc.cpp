#include "group/rendezvous_inproc.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/process_state.h"
#include "group/joining.h"

namespace distag {
namespace {

class InprocJoining;

struct Group {
  explicit Group(RankTable rank_table_) : rank_table(std::move(rank_table_)) {}
  RankTable rank_table;
  std::map<Incarnation, InprocJoining*> here;
};

// The groups of this process, by uri, as long as they have members. An entry and the object that it points to are
// removed together under the lock. So posts to the loops of others are made while it is held: it is no leaf lock.
struct Groups {
  std::map<std::string, Group>* by_uri = nullptr;
};
ProcessState<Groups> g_groups;
using GroupsAccess = ProcessState<Groups>::Access;

class InprocJoining final : public JoiningElsewhere {
 public:
  InprocJoining(const std::string& uri, Loop& loop, Log& log) : JoiningElsewhere(loop, log, uri) {}
  ~InprocJoining() override { withdraw(); }

  void look_up(Incarnation incarnation, Answer answer) override {
    std::optional<Peer> found;
    {
      const GroupsAccess groups(g_groups);
      if (Group* group = find_group(groups)) found = group->rank_table.find(incarnation);
    }
    answer(found);
  }

 private:
  void begin() override {
    const wire::Join join = join_message();
    const GroupsAccess groups(g_groups);
    if (groups->by_uri == nullptr) groups->by_uri = new std::map<std::string, Group>;
    Group& group =
        groups->by_uri->try_emplace(uri(), RankTable(uri(), request().job, request().world_size)).first->second;
    try {
      group.rank_table.check(join);
    } catch (...) {
      group.rank_table.note_refused(join, current_error());
      if (group.here.empty()) forget_group(groups);
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
      const GroupsAccess groups(g_groups);
      if (Group* group = find_group(groups)) error = group->rank_table.missing_error();
    }
    return error;
  }
  void on_deadline() override { withdraw(); }

  Group* find_group(const GroupsAccess& groups) const {
    if (groups->by_uri == nullptr) return nullptr;
    const auto found = groups->by_uri->find(uri());
    return found == groups->by_uri->end() ? nullptr : &found->second;
  }

  void forget_group(const GroupsAccess& groups) {
    groups->by_uri->erase(uri());
    if (groups->by_uri->empty()) delete std::exchange(groups->by_uri, nullptr);
  }

  void post_members(const std::vector<Peer>& members) {
    loop_.post_or_drop([this, alive = alive(), members] {
      if (!alive.expired()) succeed(members);
    });
  }

  void withdraw() {
    const GroupsAccess groups(g_groups);
    Group* group = find_group(groups);
    if (group == nullptr) return;
    const Incarnation self = request().self.incarnation;
    const auto here = group->here.find(self);
    if (here == group->here.end() || here->second != this) return;
    group->here.erase(here);
    group->rank_table.remove(self);
    if (group->here.empty()) forget_group(groups);
  }
};

}  // namespace

std::unique_ptr<Rendezvous> make_inproc_rendezvous(const std::string& uri, Loop& loop, Log& log) {
  return std::make_unique<InprocJoining>(uri, loop, log);
}

}  // namespace distag
