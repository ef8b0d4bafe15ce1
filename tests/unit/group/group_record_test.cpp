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

// In an open world a worker may have no name. One that comes to a group of another size is in its record.
TEST(GroupRecord, AWorkerWithoutANameIsReadBack) {
  GroupRecord record = record_of_two(2);
  record.book.misled = {"", -1};
  EXPECT_EQ(read_group_record(write_group_record(record)).book.misled.world_size, -1);
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
      {"/book/refused", Json::array({Json::object({{"name", "x"}, {"text", ""}, {"place", ""}})})},
      {"/book/refused", Json::array({Json::object({{"name", "x y"}, {"text", "no"}, {"place", ""}})})},
      {"/book/refused", Json::array({Json::object({{"name", "x"}, {"text", std::string(513, 't')}, {"place", ""}})})},
      {"/book/refused", Json::array({Json::object({{"name", "x"}, {"text", "no"}, {"place", std::string(513, 'p')}})})},
      {"/book/refused", Json(9, Json::object({{"name", "x"}, {"text", "no"}, {"place", ""}}))},
      {"/book/forgotten", -1},
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

GroupRecord record_that_waits() {
  RankTable table("here", "job", 2);
  table.add({0, "a", "sim://a", 10, 0, 100});
  return {"job", 7, 2, table.book()};
}

wire::Join join_of(const std::string& name) {
  wire::Join join;
  join.job = "job";
  join.protocol = 7;
  join.world_size = 2;
  join.member = {1, name, "sim://" + name, 12, 0, 100};
  join.host = std::string(600, 'h');
  join.process = 3;
  return join;
}

TEST(GroupRecord, KeepsTheLastRefusalsEachOnce) {
  GroupRecord record = record_that_waits();
  for (int i = 0; i < 12; ++i) {
    const Error why(Status::kInvalidState, fmt::format("rendezvous \"here\": {} {}", i / 2, std::string(600, 't')));
    EXPECT_TRUE(note_refused("here", record, join_of("x"), why));
    record = read_group_record(write_group_record(record));
  }
  EXPECT_EQ(record.book.refused.size(), 6u);
  for (int i = 6; i < 20; ++i) note_refused("here", record, join_of("x"), {Status::kDenied, std::to_string(i)});
  record = read_group_record(write_group_record(record));
  EXPECT_EQ(record.book.refused.size(), RankTable::kMostRefused);
  EXPECT_EQ(record.book.forgotten, 12u);
  EXPECT_EQ(record.book.refused.back().text, "19 (at sim://x)");
}

// A worker of another version does not know what the others can read, and no member waits in a group that has met.
TEST(GroupRecord, NotesARefusalOnlyForMembersThatWait) {
  const Error why(Status::kInvalidState, "no");
  wire::Join join = join_of("x");
  GroupRecord met = record_of_two(2);
  EXPECT_FALSE(note_refused("here", met, join, why));
  GroupRecord record = record_that_waits();
  join.protocol = 8;
  EXPECT_FALSE(note_refused("here", record, join, why));
  EXPECT_TRUE(met.book.refused.empty() && record.book.refused.empty());
}

TEST(GroupRecord, ARefusalIsForgottenOnceTheWorkerOrAllHaveCome) {
  GroupRecord record = record_that_waits();
  record.world_size = 3;
  for (const char* name : {"x", "y"}) {
    wire::Join join = join_of(name);
    join.world_size = 3;
    note_refused("here", record, join, {Status::kInvalidState, name});
  }
  RankTable table("here", "job", 3, record.book);
  table.add({1, "x", "sim://x", 12, 0, 100});
  ASSERT_EQ(table.book().refused.size(), 1u);
  EXPECT_EQ(table.book().refused.front().name, "y");
  table.add({2, "z", "sim://z", 13, 0, 100});
  EXPECT_TRUE(table.book().refused.empty());
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
