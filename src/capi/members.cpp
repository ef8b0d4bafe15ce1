// Members of the group, as a worker sees them.

#include <algorithm>
#include <cstring>

#include "base/not_started.h"
#include "capi/struct_check.h"
#include "capi/worker.h"

namespace distag::capi {

distag_member to_member(const MemberRecord& record) {
  distag_member member = DISTAG_MEMBER_INIT;
  member.rank = record.peer.rank;
  // A member that has restarted counts as lost until its successor is known.
  member.state = static_cast<int32_t>(record.state == Standing::kRestarted ? Standing::kLost : record.state);
  member.incarnation = record.peer.incarnation;
  std::strncpy(member.name, record.peer.name.c_str(), sizeof member.name - 1);
  return member;
}

}  // namespace distag::capi

using namespace distag;
using namespace distag::capi;

namespace {

const Membership& need_members(distag_worker* worker) { return need_worker(worker).core().group().membership(); }

void clear_member(distag_member* out_member) {
  const distag_member nobody = DISTAG_MEMBER_INIT;
  if (is_readable(out_member, sizeof nobody)) fill_struct(out_member, nobody);
}

[[noreturn]] void refuse_unknown(distag_worker& worker, const std::string& which) {
  const bool is_started = original_of(&worker)->core().is_started();
  refuse(Status::kNotFound, "the group has no worker {}{}{}", which, is_started ? "" : ": ",
         is_started ? "" : kNotStarted);
}

}  // namespace

distag_status distag_worker_get_member(distag_worker* worker, int32_t rank, distag_member* out_member,
                                       distag_error* err) {
  return guard(__func__, err, [=] {
    clear_member(out_member);
    const Membership& members = need_members(worker);
    check_filled_struct(out_member, sizeof(distag_member), "distag_member");
    const auto record = members.find_by_rank(rank);
    if (!record) refuse_unknown(*worker, fmt::format("of rank {}", rank));
    fill_struct(out_member, to_member(*record));
  });
}

distag_status distag_worker_get_member_by_name(distag_worker* worker, const char* name, distag_member* out_member,
                                               distag_error* err) {
  return guard(__func__, err, [=] {
    clear_member(out_member);
    const Membership& members = need_members(worker);
    check_filled_struct(out_member, sizeof(distag_member), "distag_member");
    const std::string wanted = need_text(name, "name");
    const auto record = members.find_by_name(wanted);
    if (!record) refuse_unknown(*worker, fmt::format("\"{}\"", wanted));
    fill_struct(out_member, to_member(*record));
  });
}

distag_status distag_worker_copy_ranks(distag_worker* worker, const char* prefix, int32_t* ranks, size_t capacity,
                                       size_t* out_count, distag_error* err) {
  clear(out_count);
  return guard(__func__, err, [=] {
    const Membership& members = need_members(worker);
    const std::string wanted = need_text(prefix, "prefix");
    check_array(ranks, capacity, "ranks");
    need_pointer(out_count, "out_count");
    size_t count = 0;
    for (const MemberRecord& record : members.all()) {
      if (record.state != Standing::kMember || !record.peer.name.starts_with(wanted)) continue;
      if (count < capacity) ranks[count] = record.peer.rank;
      ++count;
    }
    *out_count = count;
  });
}
