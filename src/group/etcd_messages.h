#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "group/group_record.h"

// The messages of etcd v3 in its JSON gateway: writes the bodies of requests and reads their answers. Reading throws
// PROTOCOL for an answer that is not from etcd, or that has foreign keys. Any thread.
//
//   <prefix>/group           the record of the group (group_record.h). Only transactions that name the revision
//                            which they have read may change it
//   <prefix>/member/<id>     exists while the member of this incarnation (16 hexadecimal digits) lives: it is bound
//                            to the member's lease. Written together with the entry in the record
namespace distag::etcd {

// The group at one revision of etcd.
struct View {
  std::optional<GroupRecord> group;
  int64_t group_revision = 0;  // revision of the record; 0: no record
  std::set<Incarnation> here;  // incarnations whose leases live
  int64_t revision = 0;
  bool is_whole = false;  // otherwise only the revision is known
};

struct Lease {
  int64_t id = 0;
  int64_t seconds = 0;
};

// A transaction that puts the entry of a member.
struct Entry {
  int64_t group_revision = 0;        // the record must have this revision
  std::optional<std::string> group;  // and is replaced by this text
  std::vector<Incarnation> gone;     // none of these may have an entry
  bool is_first = false;             // no member may have an entry
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
// The same, but only the revision if this member has its entry.
std::string read_group_without(const std::string& prefix, Incarnation self);
View read_view(const std::string& prefix, const std::string& answer);

std::string enter(const std::string& prefix, const Entry& entry);
// Replaces only the record.
std::string replace_group(const std::string& prefix, int64_t group_revision, const std::string& group);
bool read_succeeded(const std::string& answer);
// Removes the entry of this member, and the record if it was the last.
std::string leave(const std::string& prefix, Incarnation self);
// Removes the entries of other members if this member has its entry.
std::string remove(const std::string& prefix, Incarnation self, const std::vector<Incarnation>& members);

// Watches all members, or one, after a revision.
std::string watch_members(const std::string& prefix, int64_t after);
std::string watch_member(const std::string& prefix, Incarnation member, int64_t after);
enum class News { kNone, kChange, kEnd };
News read_news(std::string_view line);

struct Refusal {
  int code = -1;  // code of gRPC; -1: not given
  std::string text;
};
Refusal read_refusal(const std::string& answer);

}  // namespace distag::etcd
