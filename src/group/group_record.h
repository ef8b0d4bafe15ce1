#pragma once

#include <cstdint>
#include <string>

#include "group/rank_table.h"

namespace distag {

// A group as text (JSON), for a rendezvous that keeps the record outside its members.
struct GroupRecord {
  std::string job;
  uint32_t protocol = 0;
  int32_t world_size = 0;  // -1: open
  RankTable::Book book;
};

std::string write_group_record(const GroupRecord& record);

// Reads a text that others have written: throws PROTOCOL unless each part, and all parts together, are valid for a
// group.
GroupRecord read_group_record(const std::string& text);

// Throws when the joiner expects a group other than the one at `where`: PROTOCOL, DENIED (another job),
// INVALID_ARGUMENT (another world size, which is then noted in the record).
void check_same_group(const std::string& where, GroupRecord& record, const wire::Join& join);

// Notes in the record that the joiner was refused with `why`, for those who wait for the missing members. True: the
// record is to be written. A worker of another version may not write it, and no one waits in a group that has met.
bool note_refused(const std::string& where, GroupRecord& record, const wire::Join& join, const Error& why);

}  // namespace distag
