#include "group/slurm.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "base/error.h"
#include "group/rendezvous.h"
#include "support/expect.h"

namespace distag {
namespace {

using Environment = std::map<std::string, std::string>;

const Environment kStep = {{"SLURM_JOB_ID", "17"},
                           {"SLURM_STEP_ID", "2"},
                           {"SLURM_PROCID", "1"},
                           {"SLURM_STEP_NUM_TASKS", "4"},
                           {"SLURM_STEP_NODELIST", "n[1-3,7]"}};

EnvironmentReader read_from(const Environment& environment) {
  return [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
}

std::string address_in(const Environment& environment) { return slurm_address(read_from(environment)); }

std::string refusal(const Environment& environment) {
  return testing::failure_of([&] { address_in(environment); });
}

Environment with(const char* name, const std::string& value) {
  Environment environment = kStep;
  environment[name] = value;
  return environment;
}

void expect_list(const std::string& text, const std::string& first, uint64_t count) {
  const HostList list = parse_host_list(text);
  EXPECT_EQ(list.first, first) << text;
  EXPECT_EQ(list.count, count) << text;
}

TEST(Slurm, TheFirstHostOfAList) {
  expect_list("n1", "n1", 1);
  expect_list("n1,n2,other", "n1", 3);
  expect_list("n[1-3,7]", "n1", 4);
  expect_list("n[7,1-3]", "n7", 4);
  expect_list("n[007-010],x", "n007", 5);
  expect_list("rack[0-1]n[01-10].example.org", "rack0n01.example.org", 20);
  expect_list("[1-2]", "1", 2);
  expect_list("n[0-999999999]m[0-999999999]", "n0m0", UINT32_MAX);
}

TEST(Slurm, RefusesWhatIsNoList) {
  for (const char* bad : {"",         ",",     "n1,",           ",n1",    "n[",    "n[]",     "n[1",    "n[1-", "n[1-]",
                          "n[-1]",    "n[1-2", "n[1,]",         "n[3-1]", "n[1]]", "n[[1]]",  "n[a-b]", "n 1",  "n1;n2",
                          "n[1-2-3]", "n/1",   "n[1234567890]", "n1\n",   "n:1",   "\xc3\xa4"}) {
    EXPECT_EQ(testing::failure_of([&] { parse_host_list(bad); }).rfind("INVALID_ARGUMENT: no list of hosts", 0), 0u)
        << bad;
  }
  EXPECT_EQ(testing::failure_of([] { parse_host_list("n[1-"); }),
            "INVALID_ARGUMENT: no list of hosts like \"n[1-3,7]\": a range has numbers of 1 to 9 digits, but not at "
            "character 5");
}

TEST(Slurm, ManyRangesAreRefusedBeforeTheyCost) {
  std::string ranges = "n[1";
  for (int i = 0; i < 10000; ++i) ranges += ",1";
  EXPECT_EQ(testing::failure_of([&] { parse_host_list(ranges + "]"); }),
            "INVALID_ARGUMENT: a list of more than 4096 hosts and ranges");
  EXPECT_EQ(testing::failure_of([] { parse_host_list(std::string(70000, 'n')); }),
            "INVALID_ARGUMENT: a list of hosts of 70000 bytes, more than 65536");
  EXPECT_EQ(testing::failure_of([] { parse_host_list(std::string(300, 'n')); }).rfind("INVALID_ARGUMENT", 0), 0u);
}

TEST(Slurm, AnyTextIsAListOrRefused) {
  std::mt19937 random(11);
  const std::string letters = "n1[]-,,09.[";
  int lists = 0;
  for (int round = 0; round < 50000; ++round) {
    std::string text = "n";
    for (auto size = random() % 12; size > 0; --size) text += letters[random() % letters.size()];
    try {
      const HostList list = parse_host_list(text);
      EXPECT_FALSE(list.first.empty());
      EXPECT_EQ(list.first.find_first_of("[],"), std::string::npos) << text;
      EXPECT_GE(list.count, 1u);
      ++lists;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument);
    }
  }
  EXPECT_GT(lists, 1000);
}

TEST(Slurm, TheAddressIsThatOfTheFirstHostByJobAndStep) {
  EXPECT_EQ(address_in(kStep), "tcp://n1:20274");
  EXPECT_EQ(address_in(with("SLURM_STEP_ID", "3")), "tcp://n1:20275");
  EXPECT_EQ(address_in(with("SLURM_JOB_ID", "18")), "tcp://n1:20290");
  EXPECT_EQ(address_in(with("SLURM_STEP_NODELIST", "n5")), "tcp://127.0.0.1:20274");
  for (const int job : {0, 797, 798, 12767, 12768, 2147483647}) {
    const std::string address = address_in(with("SLURM_JOB_ID", std::to_string(job)));
    const int port = std::stoi(address.substr(address.rfind(':') + 1));
    EXPECT_TRUE(port >= 20000 && port <= 32767) << address;
  }
}

TEST(Slurm, NamesWhatIsMissingOrMalformed) {
  EXPECT_EQ(refusal(with("SLURM_STEP_NODELIST", "")),
            "INVALID_ARGUMENT: slurm://: SLURM_STEP_NODELIST is not set: start the workers by srun, or set "
            "DISTAG_RENDEZVOUS");
  EXPECT_EQ(refusal(with("SLURM_JOB_ID", "x")), "INVALID_ARGUMENT: SLURM_JOB_ID=\"x\" is no number in 0 .. 2147483647");
  EXPECT_EQ(refusal(with("SLURM_STEP_NODELIST", "n[1")),
            "INVALID_ARGUMENT: slurm://: SLURM_STEP_NODELIST: no list of hosts like \"n[1-3,7]\": ranges end with "
            "\"]\", but not at character 4");
}

TEST(Slurm, AStepMeetsThereUnlessTheEnvironmentNamesAPlace) {
  EXPECT_EQ(resolve_rendezvous("env://", 0, 0, read_from(kStep)).uri, "tcp://n1:20274");
  EXPECT_EQ(resolve_rendezvous("env://", 0, 0, read_from(kStep)).rank, 1);
  EXPECT_EQ(resolve_rendezvous("slurm://", 0, 0, read_from(kStep)).uri, "tcp://n1:20274");
  EXPECT_EQ(resolve_rendezvous("slurm://", 1, 2, read_from(kStep)).uri, "tcp://n1:20274");
  EXPECT_EQ(resolve_rendezvous("env://", 1, 2, read_from(kStep)).uri, "tcp://n1:20274");
  EXPECT_EQ(resolve_rendezvous("env://", 0, 0, read_from(with("DISTAG_RENDEZVOUS", "slurm://"))).uri, "tcp://n1:20274");
  EXPECT_EQ(resolve_rendezvous("env://", 0, 0, read_from(with("DISTAG_RENDEZVOUS", "file:///x"))).uri, "file:///x");
  Environment named = with("MASTER_ADDR", "head");
  named["MASTER_PORT"] = "4711";
  EXPECT_EQ(resolve_rendezvous("env://", 0, 0, read_from(named)).uri, "tcp://head:4711");
  named.erase("MASTER_PORT");
  EXPECT_NE(testing::failure_of([&] { resolve_rendezvous("env://", 0, 0, read_from(named)); }).find("MASTER_PORT"),
            std::string::npos);
}

}  // namespace
}  // namespace distag
