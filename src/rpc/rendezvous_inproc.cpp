#include "rpc/rendezvous_inproc.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "rpc/joining.h"

namespace distag {
namespace {

class InprocJoining;

// A group whose members are not all there yet.
struct Group {
  explicit Group(Gathering gathering_) : gathering(std::move(gathering_)) {}
  Gathering gathering;
  std::map<Incarnation, InprocJoining*> waiting;
};

// All that are joining in this process, by uri; there only while somebody is. An entry and the object that it points to
// go together under the mutex, so posts to the loops of others are made while it is held.
std::mutex g_mutex;
std::map<std::string, Group>* g_groups = nullptr;

class InprocJoining final : public Joining {
 public:
  InprocJoining(const std::string& uri, Loop& loop, Log& log) : Joining(loop, log, uri) {}
  ~InprocJoining() override { withdraw(); }

 private:
  void begin() override {
    const wire::Join join = join_message();
    std::lock_guard<std::mutex> lock(g_mutex);
    if (g_groups == nullptr) g_groups = new std::map<std::string, Group>;
    Group& group = g_groups->try_emplace(uri(), Gathering(uri(), request().job, request().world_size)).first->second;
    try {
      group.gathering.check(join);
    } catch (const Error& error) {
      if (group.gathering.is_other_world(join)) end_group(group, {}, error);
      throw;
    }
    group.gathering.add(join.member);
    group.waiting.emplace(join.member.incarnation, this);
    if (group.gathering.is_complete()) end_group(group, group.gathering.members(), Error());
  }

  Error on_deadline() override {
    std::vector<int32_t> missing;
    {
      std::lock_guard<std::mutex> lock(g_mutex);
      if (Group* group = find_group()) missing = group->gathering.missing();
    }
    withdraw();
    return missing_error(uri(), missing, request().world_size);
  }

  Group* find_group() const {
    if (g_groups == nullptr) return nullptr;
    const auto found = g_groups->find(uri());
    return found == g_groups->end() ? nullptr : &found->second;
  }

  // Tells all who wait, with the lock held, and forgets the group.
  void end_group(Group& group, const std::vector<Peer>& members, const Error& error) {
    for (const auto& [incarnation, joining] : group.waiting) joining->post_outcome(members, error);
    forget_group();
  }

  void forget_group() {
    g_groups->erase(uri());
    if (g_groups->empty()) delete std::exchange(g_groups, nullptr);
  }

  void post_outcome(const std::vector<Peer>& members, const Error& error) {
    loop_.post([this, alive = alive(), members, error] {
      if (alive.expired()) return;
      if (members.empty()) {
        give_up(error);
      } else {
        succeed(members);
      }
    });
  }

  void withdraw() {
    std::lock_guard<std::mutex> lock(g_mutex);
    Group* group = find_group();
    if (group == nullptr) return;
    const Incarnation self = request().self.incarnation;
    const auto waiting = group->waiting.find(self);
    if (waiting == group->waiting.end() || waiting->second != this) return;
    group->waiting.erase(waiting);
    group->gathering.remove(self);
    if (group->waiting.empty()) forget_group();
  }
};

}  // namespace

std::unique_ptr<Rendezvous> make_inproc_rendezvous(const std::string& uri, Loop& loop, Log& log) {
  return std::make_unique<InprocJoining>(uri, loop, log);
}

}  // namespace distag
