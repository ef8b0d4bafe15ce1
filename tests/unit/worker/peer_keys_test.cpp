#include "worker/peer_keys.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "transport/socket/worker_key.h"

namespace distag {
namespace {

CurveKey public_key(uint8_t number) {
  CurveKey key{};
  key[0] = number;
  return key;
}

class PeerKeysTest : public testing::Test {
 protected:
  WorkerKeys start_with(KeyRing::Keys peers) {
    WorkerKeys started;
    started.own = own_;
    started.peers = std::make_shared<KeyRing>(std::move(peers));
    keys_.begin(started, "me");
    return started;
  }

  const CurveKeyPair own_ = pair_of(public_key(9));
  PeerKeys keys_{std::nullopt};
};

TEST_F(PeerKeysTest, AChangeBeforeTheStartTakesThePlaceOfTheKeysOfTheStart) {
  EXPECT_TRUE(keys_.replace({{"a", public_key(1)}}, "me").empty());
  const WorkerKeys started = start_with({{"b", public_key(2)}});
  EXPECT_EQ(started.peers->replace({}), std::vector<std::string>{"a"});
}

TEST_F(PeerKeysTest, AChangeAfterTheStartNamesThoseWhoseKeysAreOthers) {
  start_with({{"a", public_key(1)}, {"b", public_key(2)}});
  EXPECT_EQ(keys_.replace({{"a", public_key(1)}, {"b", public_key(3)}}, "me"), std::vector<std::string>{"b"});
}

TEST_F(PeerKeysTest, TheOwnKeyUnderAnotherNameIsRefusedAndChangesNothing) {
  const WorkerKeys started = start_with({{"a", public_key(1)}});
  EXPECT_THROW(keys_.replace({{"b", own_.public_key}}, "me"), Error);
  EXPECT_EQ(started.peers->replace({}), std::vector<std::string>{"a"});
}

TEST_F(PeerKeysTest, TheOwnKeyIsKnownBeforeTheStartWhereTheOptionsGiveIt) {
  PeerKeys keys(public_key(9));
  EXPECT_THROW(keys.replace({{"b", own_.public_key}}, "me"), Error);
  EXPECT_NO_THROW(keys.replace({{"me", own_.public_key}}, "me"));
}

}  // namespace
}  // namespace distag
