#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "group/group_record.h"

// The words of etcd v3, by its JSON gateway: bodies of requests, and what their answers say. Who reads an answer throws
// PROTOCOL when it is not from etcd, or holds keys of something else. Any thread.
//
//   <prefix>/group           the record of the group (group_record.h). It changes only by transactions that name the
//                            revision of it that they have seen
//   <prefix>/member/<id>     there as long as the member of this incarnation (16 hexadecimal digits) lives: it goes
//   with
//                            the member's lease. Put together with the entry in the record
namespace distag::etcd {

// The group as it was at one revision of etcd.
struct View {
  std::optional<GroupRecord> group;
  int64_t group_revision = 0;  // of its record; 0: no record
  std::set<Incarnation> here;  // whose leases live
  int64_t revision = 0;
  bool is_whole = false;  // else only the revision is known
};

struct Lease {
  int64_t id = 0;
  int64_t seconds = 0;
};

// A transaction that puts the entry of a member.
struct Entry {
  int64_t group_revision = 0;        // the record has to be that of this revision
  std::optional<std::string> group;  // and becomes this
  std::vector<Incarnation> gone;     // none of them may have come back
  bool is_first = false;             // no member may be here
  Incarnation self = 0;
  int64_t lease = 0;
};

std::string authenticate(const std::string& user, const std::string& password);
std::string read_token(const std::string& answer);

std::string grant(int64_t seconds);
Lease read_lease(const std::string& answer);
std::string keep_alive(int64_t lease);
bool read_is_alive(const std::string& answer);
std::string revoke(int64_t lease);

std::string read_group(const std::string& prefix);
// The same, or no more than the revision if this member is there.
std::string read_group_without(const std::string& prefix, Incarnation self);
View read_view(const std::string& prefix, const std::string& answer);

std::string enter(const std::string& prefix, const Entry& entry);
// Puts the record alone.
std::string replace_group(const std::string& prefix, int64_t group_revision, const std::string& group);
bool read_succeeded(const std::string& answer);
// Takes the entry away, and the record with the last one.
std::string leave(const std::string& prefix, Incarnation self);
// Takes the entries of others away if that of this member is there.
std::string remove(const std::string& prefix, Incarnation self, const std::vector<Incarnation>& members);

// Of all members after a revision; or of one.
std::string watch_members(const std::string& prefix, int64_t after);
std::string watch_member(const std::string& prefix, Incarnation member, int64_t after);
enum class News { kNone, kChange, kEnd };
News read_news(std::string_view line);

struct Refusal {
  int code = -1;  // of gRPC; -1: not said
  std::string text;
};
Refusal read_refusal(const std::string& answer);

}  // namespace distag::etcd
