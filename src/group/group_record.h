#pragma once

#include <cstdint>
#include <string>

#include "group/rank_table.h"

namespace distag {

// A group as text (JSON), for a rendezvous that keeps it outside of any member.
struct GroupRecord {
  std::string job;
  uint32_t protocol = 0;
  int32_t world_size = 0;  // -1: open
  RankTable::Book book;
};

std::string write_group_record(const GroupRecord& record);

// Of a text that others have written: throws PROTOCOL unless each part of it, and all of them together, could be those
// of a group.
GroupRecord read_group_record(const std::string& text);

// Throws when the joiner expects another group than the one at `where`: PROTOCOL, DENIED (another job),
// INVALID_ARGUMENT (another size of the world, which the record then tells).
void check_same_group(const std::string& where, GroupRecord& record, const wire::Join& join);

}  // namespace distag
