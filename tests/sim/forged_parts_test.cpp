// Messages of meshes that no correct member sends, or that come late.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/violation.h"
#include "coll/meshes.h"
#include "mesh_members.h"

namespace distag::sim {
namespace {

class ForgedPartsTest : public ::testing::Test {
 protected:
  ForgedPartsTest() : members_(1, {2, 2}) {
    for (int32_t rank = 0; rank < 4; ++rank) {
      peers_.push_back(members_.group().worker(0).group().membership().find_by_rank(rank)->peer);
    }
  }
  // Delivers the message to w0 as if it came now.
  std::optional<Heard> deliver(size_t from, wire::Body body) {
    std::optional<Heard> heard;
    members_.group().loop(0).run([&] {
      heard = members_.group().worker(0).meshes().handle(peers_[from], wire::Message{0, 0, {}, std::move(body)});
    });
    return heard;
  }
  void expect_violation(size_t from, const wire::Body& body) {
    EXPECT_THROW(deliver(from, body), Violation) << wire::body_name(body);
  }
  // Makes a call of w0 that w1 has not made, and returns the part that w1 will send, except for its values.
  wire::Part part() {
    std::optional<wire::Part> caught;
    members_.group().network().set_tap([&caught](const std::string&, const std::string& to, const Frames& frames) {
      if (to != "w1" || caught) return;
      const wire::Message message = wire::decode(frames.front(), {frames.begin() + 1, frames.end()}, {});
      if (const auto* body = std::get_if<wire::Part>(&message.body)) caught = *body;
    });
    own_ = members_.mesh(0).collective(call_of(CollectiveKind::kAllReduce, {1}, numbers({2}, 1)));
    EXPECT_TRUE(members_.group().scheduler().run_until([&] { return caught.has_value(); }, kSecond));
    members_.group().network().set_tap({});
    return *caught;
  }

  MeshGroup members_;
  std::vector<Peer> peers_;
  Result own_;
};

TEST_F(ForgedPartsTest, APieceThatTheCallHasNotIsAViolation) {
  const wire::Part real = part();
  expect_violation(2, real);  // a member that takes no part
  wire::Part forged = real;
  forged.part = std::numeric_limits<uint32_t>::max();
  expect_violation(1, forged);
  forged = real;
  forged.pieces = {Value(numbers({3}, 1))};
  expect_violation(1, forged);
  forged.pieces = {real.pieces[0], real.pieces[0]};
  expect_violation(1, forged);
  EXPECT_FALSE(own_->is_done());
  EXPECT_EQ(deliver(1, real), Heard::kHandled);
  EXPECT_TRUE(same_bits(value_of(own_), expected_sum({numbers({2}, 1), numbers({2}, 1)})));
  expect_violation(1, real);  // twice: the call is over
}

TEST_F(ForgedPartsTest, APieceTwiceIsAViolationAlsoBeforeTheCall) {
  wire::Part real = part();
  real.number = 2;
  EXPECT_EQ(deliver(1, real), Heard::kHandled);
  expect_violation(1, real);
}

TEST_F(ForgedPartsTest, AWorkerThatIsNoMemberIsAViolation) {
  Peer stranger = peers_[1];
  stranger.incarnation ^= 1;
  peers_.push_back(stranger);
  expect_violation(4, part());
  expect_violation(4, wire::MeshEnd{members_.mesh(0).id(), Error(Status::kRemote, "no"), false});
  expect_violation(4, wire::Calls{members_.mesh(0).id(), "", {}});
  expect_violation(4, wire::Where{members_.mesh(0).id(), "", {}});
  expect_violation(4, wire::Here{members_.mesh(0).id(), "", false, false, 0, "", 0, {}, {}});
}

TEST_F(ForgedPartsTest, AfterTheEndAllIsStale) {
  const wire::Part real = part();
  members_.mesh(0).end(Error(Status::kRemote, "over"));
  members_.group().scheduler().run_for(kSecond);
  EXPECT_EQ(deliver(1, real), Heard::kStale);
  EXPECT_EQ(deliver(1, wire::Calls{real.mesh, "", {}}), Heard::kStale);
  EXPECT_EQ(deliver(1, wire::MeshEnd{real.mesh, Error(Status::kInternal, "again"), false}), Heard::kStale);
  EXPECT_EQ(deliver(1, wire::Where{real.mesh, "", {}}), Heard::kStale);
  EXPECT_EQ(deliver(1, wire::Here{real.mesh, "", false, false, 0, "", 0, {}, {}}), Heard::kStale);
  expect_failure(failure_of(*own_), Status::kRemote, "over");
}

TEST_F(ForgedPartsTest, WhereAMemberIsMayBeToldTwiceUnaskedAndOfAnyLine) {
  const wire::Part real = part();
  wire::Here here{real.mesh, "", true, true, 39, "softmax(float64[2])", 58 * kSecond, {3}, {}};
  EXPECT_EQ(deliver(1, here), Heard::kHandled);
  here.number = 40;
  EXPECT_EQ(deliver(1, here), Heard::kHandled);
  here.line = "unknown";
  EXPECT_EQ(deliver(1, here), Heard::kStale);
  EXPECT_EQ(deliver(1, wire::Where{real.mesh, "unknown", {}}), Heard::kHandled);
}

TEST_F(ForgedPartsTest, OfAnUnknownMeshIsDroppedWhereNoneIsBeingMade) {
  wire::Part unknown = part();
  unknown.mesh.counter += 100;
  EXPECT_EQ(deliver(1, unknown), Heard::kStale);
}

TEST_F(ForgedPartsTest, APieceWithoutMemoryEndsTheMesh) {
  wire::Part outline = part();
  outline.pieces = {Value()};
  members_.group().loop(0).run([&] {
    members_.group().worker(0).meshes().refuse(peers_[1], wire::Message{0, 0, {}, outline},
                                               Error(Status::kOutOfMemory, "no memory for a part"));
  });
  expect_failure(failure_of(*own_), Status::kOutOfMemory, "no memory for a part");
}

}  // namespace
}  // namespace distag::sim
