#include "group/group_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace distag {
namespace {

using Json = nlohmann::json;

GroupRecord record_of_two(int32_t world_size) {
  RankTable table("here", "job", world_size);
  table.add({0, "a", "sim://a", 10, 0, 100});
  table.add({1, "b", "sim://b", 18446744073709551615u, 0, 100});
  return {"job", 7, world_size, table.book()};
}

TEST(GroupRecord, ComesBackAsItWas) {
  GroupRecord record = record_of_two(2);
  record.book.misled = {"c", 5};
  record.book.withdrawn = {1};
  record.book.seats[1].is_gone = true;
  const std::string text = write_group_record(record);
  const GroupRecord back = read_group_record(text);
  EXPECT_EQ(write_group_record(back), text);
  EXPECT_EQ(back.job, "job");
  EXPECT_EQ(back.protocol, 7u);
  EXPECT_EQ(back.world_size, 2);
  EXPECT_TRUE(back.book.has_met);
  EXPECT_TRUE(back.book.seats.at(1).is_gone);
  EXPECT_EQ(back.book.seats.at(1).peer.incarnation, 18446744073709551615u);
}

// Each changes one thing of a record that is sound.
TEST(GroupRecord, RefusesEachThingThatNoGroupCouldSay) {
  struct Case {
    const char* where;
    Json value;
  };
  const std::vector<Case> cases = {
      {"/job", ""},
      {"/job", std::string(128, 'x')},
      {"/job", 1},
      {"/protocol", -1},
      {"/protocol", 1.5},
      {"/protocol", true},
      {"/world_size", 0},
      {"/world_size", -2},
      {"/world_size", 4294967298u},
      {"/world_size", 3},  // and has met
      {"/book", Json::array()},
      {"/book/has_met", 1},
      {"/book/has_met", false},
      {"/book/seats", Json::object()},
      {"/book/seats/0/rank", 2},
      {"/book/seats/0/rank", -1},
      {"/book/seats/0/rank", 1},  // twice
      {"/book/seats/0/name", "b"},
      {"/book/seats/0/name", "with space"},
      {"/book/seats/0/name", "other"},  // which was never given a generation
      {"/book/seats/0/endpoint", ""},
      {"/book/seats/0/endpoint", std::string(1025, 'x')},
      {"/book/seats/0/incarnation", 0},
      {"/book/seats/0/incarnation", 18446744073709551615u},
      {"/book/seats/0/incarnation", "10"},
      {"/book/seats/0/generation", 0},
      {"/book/seats/0/generation", 2},
      {"/book/seats/0/max_message_bytes", -1},
      {"/book/seats/0/is_gone", "no"},
      {"/book/withdrawn", Json::array({2})},
      {"/book/generations/a", 0},
      {"/book/generations/c d", 1},
      {"/book/misled/world_size", -2},
      {"/book/misled", Json::object({{"name", ""}, {"world_size", 4}})},
  };
  const std::string sound = write_group_record(record_of_two(2));
  EXPECT_NO_THROW(read_group_record(sound));
  for (const Case& one : cases) {
    Json json = Json::parse(sound);
    json[Json::json_pointer(one.where)] = one.value;
    try {
      read_group_record(json.dump());
      ADD_FAILURE() << one.where << " = " << one.value;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kProtocol) << one.where << " = " << one.value;
    }
  }
}

TEST(GroupRecord, RefusesWhatIsNoRecordAtAll) {
  for (const std::string text : {"", "not json", "[1, 2]", "{}", "null", "{\"job\": \"x\"", "\xff\xfe"}) {
    try {
      read_group_record(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kProtocol) << text;
    }
  }
}

TEST(GroupRecord, AnOpenWorldTakesAnyRankBelowTheirNumber) {
  GroupRecord record = record_of_two(-1);
  record.book.seats[65535] = {{65535, "far", "sim://far", 11, 1, 0}, false};
  record.book.generations["far"] = 1;
  EXPECT_EQ(read_group_record(write_group_record(record)).book.seats.size(), 3u);
  record.book.seats[65536] = {{65536, "farther", "sim://farther", 12, 1, 0}, false};
  record.book.generations["farther"] = 1;
  EXPECT_THROW(read_group_record(write_group_record(record)), Error);
}

}  // namespace
}  // namespace distag
