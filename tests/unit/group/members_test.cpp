#include <gtest/gtest.h>

#include "group/membership.h"
#include "group/rank_table.h"

namespace distag {
namespace {

Peer peer(int32_t rank, const std::string& name, Incarnation incarnation, uint64_t generation) {
  return {rank, name, "sim://" + name, incarnation, generation};
}

TEST(Membership, ANewerGenerationOfANameReplacesTheOlder) {
  Membership members;
  members.add(peer(1, "b", 11, 1));
  members.add(peer(0, "a", 10, 1));
  members.set_state(11, Standing::kLost);
  members.add(peer(1, "b", 12, 2));
  EXPECT_EQ(members.find_by_name("b")->peer.incarnation, 12u);
  EXPECT_EQ(members.find_by_rank(1)->peer.incarnation, 12u);
  EXPECT_EQ(members.peer_named("b")->incarnation, 12u);
  EXPECT_FALSE(members.find(11).has_value()) << "nothing is kept of the one before";
  members.add(peer(1, "b", 11, 1));
  EXPECT_EQ(members.find_by_name("b")->peer.incarnation, 12u) << "nor does it come again";
  EXPECT_EQ(members.alive_count(), 2u);
  std::vector<Incarnation> order;
  for (const MemberRecord& record : members.all()) order.push_back(record.peer.incarnation);
  EXPECT_EQ(order, (std::vector<Incarnation>{10, 12}));
}

TEST(Membership, KnowsNobodyElse) {
  Membership members;
  EXPECT_FALSE(members.find(1).has_value());
  EXPECT_FALSE(members.find_by_name("a").has_value());
  EXPECT_FALSE(members.find_by_rank(0).has_value());
  EXPECT_EQ(members.peer_named("a"), nullptr);
  members.add(peer(0, "a", 10, 1));
  members.add(peer(5, "other", 10, 9));  // the same incarnation stays as it is
  EXPECT_EQ(members.all().size(), 1u);
}

TEST(RankTable, ListsManyMissingRanksBriefly) {
  RankTable rank_table("tcp://x:1", "job", 100);
  EXPECT_EQ(
      missing_error("tcp://x:1", rank_table.missing(), 100).message(),
      "rendezvous \"tcp://x:1\": rank 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 84 more of a world "
      "of 100 did not come in time");
}

}  // namespace
}  // namespace distag
