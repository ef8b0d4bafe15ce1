#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/error.h"
#include "group/rendezvous.h"
#include "support/expect.h"

namespace distag {
namespace {

using Environment = std::map<std::string, std::string>;

RendezvousTarget resolve(const std::string& uri, int32_t rank, int32_t world_size, const Environment& environment) {
  return resolve_rendezvous(uri, rank, world_size, [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string failure(const std::string& uri, int32_t rank, int32_t world_size, const Environment& environment) {
  return testing::failure_of([&] { resolve(uri, rank, world_size, environment); });
}

const Environment kPlain = {{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};

TEST(ResolveRendezvous, TakesAllFromTheEnvironment) {
  const RendezvousTarget target = resolve("env://", 0, 0, kPlain);
  EXPECT_EQ(target.uri, "tcp://127.0.0.1:29500");
  EXPECT_EQ(target.rank, 1);
  EXPECT_EQ(target.world_size, 3);
}

TEST(ResolveRendezvous, OwnVariablesGoFirstOneByOne) {
  Environment environment = kPlain;
  environment["DISTAG_RANK"] = "2";
  environment["DISTAG_MASTER_PORT"] = "4711";
  const RendezvousTarget target = resolve("env://", 0, 0, environment);
  EXPECT_EQ(target.uri, "tcp://127.0.0.1:4711");
  EXPECT_EQ(target.rank, 2);
  EXPECT_EQ(target.world_size, 3);
}

TEST(ResolveRendezvous, OptionsGoBeforeTheEnvironment) {
  const RendezvousTarget target = resolve("env://", 4, 5, kPlain);
  EXPECT_EQ(target.rank, 4);
  EXPECT_EQ(target.world_size, 5);
}

TEST(ResolveRendezvous, RankAndSizeOfAnyUriMayComeFromTheEnvironment) {
  const RendezvousTarget target = resolve("file:///tmp/x", 0, 0, kPlain);
  EXPECT_EQ(target.uri, "file:///tmp/x");
  EXPECT_EQ(target.rank, 1);
  EXPECT_EQ(target.world_size, 3);
}

TEST(ResolveRendezvous, BracketsAnIpv6Address) {
  Environment environment = kPlain;
  environment["MASTER_ADDR"] = "::1";
  EXPECT_EQ(resolve("env://", 0, 0, environment).uri, "tcp://[::1]:29500");
}

TEST(ResolveRendezvous, ARendezvousGoesBeforeAddressAndPort) {
  Environment environment = kPlain;
  environment["DISTAG_RENDEZVOUS"] = "file:///tmp/group";
  environment["DISTAG_MASTER_PORT"] = "4711";
  EXPECT_EQ(resolve("env://", 0, 0, environment).uri, "file:///tmp/group");
  EXPECT_EQ(resolve("inproc://x", 0, 0, environment).uri, "inproc://x");
  environment["DISTAG_RENDEZVOUS"] = "";
  EXPECT_EQ(resolve("env://", 0, 0, environment).uri, "tcp://127.0.0.1:4711");
  environment["DISTAG_RENDEZVOUS"] = "env://";
  EXPECT_EQ(failure("env://", 0, 0, environment),
            "INVALID_ARGUMENT: rendezvous: DISTAG_RENDEZVOUS is \"env://\" itself");
}

std::string missing(const std::string& names) {
  return "INVALID_ARGUMENT: rendezvous: not set in the environment: " + names +
         "; set them (RANK and the like also with DISTAG_ before it), start by distag run, "
         "or give rank, world_size and rendezvous in the options";
}

TEST(ResolveRendezvous, NamesAllThatIsMissingAtOnce) {
  EXPECT_EQ(failure("env://", 0, 0, {}),
            missing("WORLD_SIZE, RANK, DISTAG_RENDEZVOUS (or MASTER_ADDR and MASTER_PORT)"));
  EXPECT_EQ(failure("env://", 0, 2, {}), missing("DISTAG_RENDEZVOUS (or MASTER_ADDR and MASTER_PORT)"));
  EXPECT_EQ(failure("file:///tmp/x", 0, 0, {}), missing("WORLD_SIZE, RANK"));
  EXPECT_EQ(failure("env://", 0, 0, {{"WORLD_SIZE", "-1"}}),
            missing("DISTAG_RENDEZVOUS (or MASTER_ADDR and MASTER_PORT)"));
  Environment environment = kPlain;
  environment.erase("MASTER_ADDR");
  EXPECT_EQ(failure("env://", 0, 0, environment), missing("MASTER_ADDR (or DISTAG_RENDEZVOUS)"));
  environment.erase("RANK");
  EXPECT_EQ(failure("env://", 0, 0, environment),
            missing("RANK (WORLD_SIZE is set), MASTER_ADDR (or DISTAG_RENDEZVOUS)"));
  environment = kPlain;
  environment.erase("MASTER_PORT");
  EXPECT_EQ(failure("env://", 0, 0, environment), missing("MASTER_PORT (or DISTAG_RENDEZVOUS)"));
}

// torchrun without --standalone: its agent listens at MASTER_PORT, also in a second attempt.
TEST(ResolveRendezvous, LeavesThePortToAnAgentThatServesThere) {
  Environment environment = kPlain;
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(resolve("env://", 0, 0, environment).uri, "tcp://127.0.0.1:29501");
  environment["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_EQ(resolve("env://", 0, 0, environment).uri, "tcp://127.0.0.1:29501");
  environment["MASTER_PORT"] = "65535";
  EXPECT_EQ(resolve("env://", 0, 0, environment).uri, "tcp://127.0.0.1:65534");
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(resolve("env://", 0, 0, environment).uri, "tcp://127.0.0.1:65535");
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  environment["DISTAG_MASTER_PORT"] = "4711";
  EXPECT_EQ(resolve("env://", 0, 0, environment).uri, "tcp://127.0.0.1:4711");
}

TEST(ResolveRendezvous, RefusesWhatIsNoNumber) {
  Environment environment = kPlain;
  environment["RANK"] = "1x";
  EXPECT_EQ(failure("env://", 0, 0, environment), "INVALID_ARGUMENT: rendezvous: RANK=\"1x\" is no number in 0 .. 2");
  environment["DISTAG_RANK"] = "3";
  EXPECT_EQ(failure("env://", 0, 0, environment),
            "INVALID_ARGUMENT: rendezvous: DISTAG_RANK=\"3\" is no number in 0 .. 2");
  environment["DISTAG_RANK"] = "0";
  environment["MASTER_PORT"] = "0";
  EXPECT_EQ(failure("env://", 0, 0, environment),
            "INVALID_ARGUMENT: rendezvous: MASTER_PORT=\"0\" is no number in 1 .. 65535");
}

TEST(ResolveRendezvous, AnOpenWorldNeedsNoRank) {
  EXPECT_EQ(resolve("inproc://x", -1, -1, {}).rank, -1);
  EXPECT_EQ(resolve("inproc://x", 7, -1, {}).rank, 7);
  EXPECT_EQ(resolve("env://", 7, -1, kPlain).uri, "tcp://127.0.0.1:29500");
  Environment environment = {{"WORLD_SIZE", "-1"}};
  EXPECT_EQ(resolve("inproc://x", 0, 0, environment).world_size, -1);
  EXPECT_EQ(resolve("inproc://x", 0, 0, environment).rank, -1);
  environment["RANK"] = "5";
  EXPECT_EQ(resolve("inproc://x", 0, 0, environment).rank, 5);
  environment["WORLD_SIZE"] = "0";
  EXPECT_EQ(failure("inproc://x", 0, 0, environment),
            "INVALID_ARGUMENT: rendezvous: WORLD_SIZE is 0; -1 is an open world");
}

TEST(ResolveRendezvous, RefusesAnAddressThatIsTooLong) {
  const std::string longest = "inproc://" + std::string(1015, 'x');
  EXPECT_EQ(resolve(longest, 0, 1, {}).uri, longest);
  const std::string refused =
      "INVALID_ARGUMENT: rendezvous: an address of 1025 bytes, more than 1024: give a shorter one";
  EXPECT_EQ(failure(longest + "x", 0, 1, {}), refused);
  EXPECT_EQ(failure("env://", 0, 1, {{"DISTAG_RENDEZVOUS", longest + "x"}}), refused);
}

TEST(ResolveRendezvous, RefusesARankOutsideOfTheWorld) {
  EXPECT_EQ(failure("inproc://x", 2, 2, {}), "INVALID_ARGUMENT: rank 2 is not in 0 .. 1");
  EXPECT_EQ(failure("inproc://x", -1, 2, {}), "INVALID_ARGUMENT: rank -1 is not in 0 .. 1");
}

}  // namespace
}  // namespace distag
