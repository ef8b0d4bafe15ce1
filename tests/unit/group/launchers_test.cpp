#include "group/launchers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <string>

#include "base/error.h"
#include "group/rendezvous.h"
#include "support/expect.h"

namespace distag {
namespace {

using Environment = std::map<std::string, std::string>;

EnvironmentReader reader_of(const Environment& environment) {
  return [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
}

// The place that PMIx gives when it is asked.
LaunchPlace pmix_place() {
  LaunchPlace place;
  place.launcher = "pmix";
  place.rank = 2;
  place.world_size = 5;
  return place;
}

LaunchPlace place_in(const Environment& environment) { return read_place(reader_of(environment), pmix_place); }

std::string failure(const Environment& environment) {
  return testing::failure_of([&] { place_in(environment); });
}

std::string missing(const std::string& names) {
  return "INVALID_ARGUMENT: not set in the environment: " + names +
         "; set them (RANK and the like also with DISTAG_ before it), or start by distag run";
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

const Environment kOwn = {{"DISTAG_RANK", "1"}, {"DISTAG_WORLD_SIZE", "3"}};
const Environment kTorch = {{"RANK", "2"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "0"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"GROUP_RANK", "1"},
                            {"GROUP_WORLD_SIZE", "2"},
                            {"TORCHELASTIC_RESTART_COUNT", "3"}};
const Environment kStep = {{"SLURM_JOB_ID", "17"},        {"SLURM_STEP_ID", "0"},
                           {"SLURM_PROCID", "5"},         {"SLURM_STEP_NUM_TASKS", "7"},
                           {"SLURM_LOCALID", "1"},        {"SLURM_NODEID", "2"},
                           {"SLURM_STEP_NUM_NODES", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                           {"SLURM_RESTART_COUNT", "1"}};
const Environment kPod = {{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}};
const Environment kMpi = {{"PMIX_NAMESPACE", "x"}, {"PMIX_RANK", "2"}, {"OMPI_COMM_WORLD_RANK", "2"}};

TEST(Launchers, TheTableFitsTheStructOfTheHeader) {
  for (const LauncherRow& row : kLaunchers) EXPECT_LT(std::strlen(row.name), 16u) << row.name;
}

TEST(Launchers, OwnVariablesTellRankAndSize) {
  const LaunchPlace place = place_in(kOwn);
  EXPECT_STREQ(place.launcher, "own");
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world_size, 3);
  EXPECT_EQ(place.local_rank, -1);
  EXPECT_EQ(place.local_size, 0);
  EXPECT_EQ(place.node, -1);
  EXPECT_EQ(place.node_count, 0);
  EXPECT_EQ(place.restart, 0);
}

TEST(Launchers, OwnVariablesTellTheRestToo) {
  const LaunchPlace place = place_in(with(kOwn, {{"DISTAG_LOCAL_RANK", "1"},
                                                 {"DISTAG_LOCAL_WORLD_SIZE", "3"},
                                                 {"DISTAG_GROUP_RANK", "0"},
                                                 {"DISTAG_GROUP_WORLD_SIZE", "1"},
                                                 {"DISTAG_RESTART_COUNT", "2"}}));
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 3);
  EXPECT_EQ(place.node, 0);
  EXPECT_EQ(place.node_count, 1);
  EXPECT_EQ(place.restart, 2);
}

TEST(Launchers, TorchrunTellsAll) {
  const LaunchPlace place = place_in(kTorch);
  EXPECT_STREQ(place.launcher, "torchrun");
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.world_size, 4);
  EXPECT_EQ(place.local_rank, 0);
  EXPECT_EQ(place.local_size, 2);
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.node_count, 2);
  EXPECT_EQ(place.restart, 3);
}

TEST(Launchers, AStepOfSlurmTellsAll) {
  const LaunchPlace place = place_in(kStep);
  EXPECT_STREQ(place.launcher, "slurm");
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.world_size, 7);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 2);
  EXPECT_EQ(place.node, 2);
  EXPECT_EQ(place.node_count, 4);
  EXPECT_EQ(place.restart, 1);
  EXPECT_EQ(place_in(with(kStep, {{"SLURM_NODEID", "3"}, {"SLURM_LOCALID", "0"}})).local_size, 1);
}

TEST(Launchers, AnIndexedJobTellsRankAndSize) {
  const LaunchPlace place = place_in(kPod);
  EXPECT_STREQ(place.launcher, "kubernetes");
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world_size, 2);
  EXPECT_STREQ(place_in({{"JOB_COMPLETION_INDEX", "1"}, {"DISTAG_WORLD_SIZE", "2"}}).launcher, "kubernetes");
}

TEST(Launchers, TheFirstCompleteOneCounts) {
  const Environment rest = with(with(kStep, kPod), kMpi);
  EXPECT_STREQ(place_in(with(rest, with(kTorch, kOwn))).launcher, "own");
  EXPECT_EQ(place_in(with(rest, with(kTorch, kOwn))).local_rank, -1);  // that of torchrun is of another group
  EXPECT_STREQ(place_in(with(rest, kTorch)).launcher, "torchrun");
  EXPECT_STREQ(place_in(with(kStep, kPod)).launcher, "slurm");
}

TEST(Launchers, ASizeAloneDoesNotHideAStep) { EXPECT_EQ(place_in(with(kStep, {{"WORLD_SIZE", "3"}})).world_size, 7); }

TEST(Launchers, EmptyVariablesAreNotSet) {
  EXPECT_STREQ(place_in(with(kTorch, {{"DISTAG_RANK", ""}, {"DISTAG_WORLD_SIZE", ""}})).launcher, "torchrun");
  EXPECT_EQ(place_in(with(kTorch, {{"GROUP_RANK", ""}})).node, -1);
  EXPECT_EQ(failure({{"RANK", ""}, {"WORLD_SIZE", ""}}), missing("WORLD_SIZE, RANK"));
}

TEST(Launchers, ALauncherSeenByHalfNamesBothHalves) {
  EXPECT_EQ(failure({}), missing("WORLD_SIZE, RANK"));
  EXPECT_EQ(failure({{"RANK", "1"}}), missing("WORLD_SIZE (RANK is set)"));
  EXPECT_EQ(failure({{"DISTAG_RANK", "1"}}), missing("WORLD_SIZE (DISTAG_RANK is set)"));
  EXPECT_EQ(failure({{"WORLD_SIZE", "1"}}), missing("RANK (WORLD_SIZE is set)"));
  EXPECT_EQ(failure({{"JOB_COMPLETION_INDEX", "1"}}), missing("WORLD_SIZE (JOB_COMPLETION_INDEX is set)"));
  Environment step = kStep;
  step.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(failure(step), missing("SLURM_STEP_NUM_TASKS (SLURM_STEP_ID and SLURM_PROCID are set)"));
  step.erase("SLURM_PROCID");
  EXPECT_EQ(failure(step), missing("SLURM_PROCID (SLURM_STEP_ID is set)"));
  EXPECT_EQ(failure(with(kStep, {{"RANK", "1"}})), missing("WORLD_SIZE (RANK is set)"));
}

TEST(Launchers, ABatchScriptIsNoStep) {
  EXPECT_EQ(failure({{"SLURM_JOB_ID", "17"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}),
            missing("SLURM_STEP_ID (SLURM_PROCID is set, as in a batch script: start the workers by srun there)"));
}

// SLURM_PROCID counts the daemons of mpirun there: 0, 0, 0, 1 for its ranks 0 to 3.
TEST(Launchers, MpirunWithinSlurmIsNotTakenForSlurm) {
  EXPECT_STREQ(place_in(with(with(kStep, kPod), kMpi)).launcher, "pmix");
  EXPECT_EQ(place_in(with(kStep, kMpi)).world_size, 5);
  const std::string both = " is set; a launcher that speaks PMIx sets both)";
  EXPECT_EQ(failure(with(kStep, {{"PMIX_RANK", "3"}})), missing("PMIX_NAMESPACE (PMIX_RANK" + both));
  EXPECT_EQ(failure(with(kStep, {{"PMIX_NAMESPACE", "x"}})), missing("PMIX_RANK (PMIX_NAMESPACE" + both));
  EXPECT_EQ(failure(with(kStep, {{"OMPI_COMM_WORLD_RANK", "3"}})), missing("PMIX_RANK (OMPI_COMM_WORLD_RANK" + both));
}

TEST(Launchers, PmixIsAskedForTheSizeAlone) {
  const RendezvousTarget target = resolve_rendezvous("env://", -1, 0, reader_of(kMpi));
  EXPECT_EQ(target.uri, "pmix://");
  EXPECT_EQ(target.rank, 2);
  EXPECT_EQ(target.world_size, 0);
  EXPECT_EQ(target.launcher, "pmix");
  EXPECT_EQ(resolve_rendezvous("env://", 0, 0, reader_of(with(kMpi, {{"DISTAG_RENDEZVOUS", "file:///x"}}))).uri,
            "file:///x");
  const Environment named = with(kMpi, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "4711"}});
  EXPECT_EQ(resolve_rendezvous("env://", 0, 0, reader_of(named)).uri, "tcp://head:4711");
  EXPECT_EQ(testing::failure_of([&] {
              resolve_rendezvous("env://", 0, 0, reader_of(with(kMpi, {{"PMIX_RANK", "-1"}})));
            }),
            "INVALID_ARGUMENT: rendezvous: PMIX_RANK=\"-1\" is no number in 0 .. 2147483647");
  EXPECT_EQ(
      testing::failure_of([&] { resolve_rendezvous("pmix://host", 0, 1, reader_of(kMpi)); }),
      "INVALID_ARGUMENT: rendezvous: \"pmix://host\": pmix:// has nothing behind it; the launcher knows the rest");
}

TEST(Launchers, NumbersAreReadStrictly) {
  for (const char* bad :
       {"x", "1x", " 1", "1 ", "+1", "0x1", "1.0", "-1", "-0", "-00", "4", "99999999999", "\xd9\xa1"}) {
    EXPECT_EQ(failure(with(kTorch, {{"RANK", bad}})),
              "INVALID_ARGUMENT: RANK=\"" + std::string(bad) + "\" is no number in 0 .. 3");
  }
  EXPECT_EQ(failure(with(kTorch, {{"WORLD_SIZE", "0"}})), "INVALID_ARGUMENT: WORLD_SIZE is 0; -1 is an open world");
  for (const char* bad : {"70000", "65537", "-2"}) {
    EXPECT_EQ(failure(with(kTorch, {{"WORLD_SIZE", bad}})),
              "INVALID_ARGUMENT: WORLD_SIZE=\"" + std::string(bad) + "\" is no number in -1 .. 65536");
  }
  EXPECT_EQ(place_in({{"WORLD_SIZE", "65536"}, {"RANK", "65535"}}).world_size, 65536);
  EXPECT_EQ(failure({{"WORLD_SIZE", "-1"}, {"RANK", "65536"}}),
            "INVALID_ARGUMENT: RANK=\"65536\" is no number in -1 .. 65535");
  EXPECT_EQ(failure(with(kTorch, {{"LOCAL_RANK", "2"}})), "INVALID_ARGUMENT: LOCAL_RANK=\"2\" is no number in 0 .. 1");
  EXPECT_EQ(failure(with(kTorch, {{"GROUP_RANK", "2"}})), "INVALID_ARGUMENT: GROUP_RANK=\"2\" is no number in 0 .. 1");
  EXPECT_EQ(failure(with(kTorch, {{"LOCAL_WORLD_SIZE", "5"}})),
            "INVALID_ARGUMENT: LOCAL_WORLD_SIZE=\"5\" is no number in 1 .. 4");
  EXPECT_EQ(failure(with(kStep, {{"SLURM_STEP_NUM_TASKS", "-1"}})),
            "INVALID_ARGUMENT: SLURM_STEP_NUM_TASKS=\"-1\" is no number in 1 .. 65536");
  for (const char* bad : {"", "x", "2(", "2(x", "2(x3", "2(x0),9", "0", "2,,1", "2,", "2", "1,1", "2(x-3)", "1(x2)1"}) {
    if (*bad == '\0') continue;
    EXPECT_EQ(failure(with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", bad}})),
              "INVALID_ARGUMENT: SLURM_STEP_TASKS_PER_NODE=\"" + std::string(bad) +
                  "\" is no list like \"2(x3),1\" with an entry for this node");
  }
}

TEST(Launchers, AnOpenWorldNeedsNoRank) {
  const LaunchPlace place = place_in({{"WORLD_SIZE", "-1"}});
  EXPECT_EQ(place.rank, -1);
  EXPECT_EQ(place.world_size, -1);
  EXPECT_STREQ(place_in({{"DISTAG_WORLD_SIZE", "-1"}}).launcher, "own");
  EXPECT_EQ(place_in({{"WORLD_SIZE", "-1"}, {"RANK", "5"}}).rank, 5);
  const LaunchPlace pod = place_in({{"WORLD_SIZE", "-1"}, {"JOB_COMPLETION_INDEX", "6"}});
  EXPECT_STREQ(pod.launcher, "kubernetes");
  EXPECT_EQ(pod.rank, 6);
}

TEST(Launchers, AStartTellsWhoseVariablesItTook) {
  EXPECT_EQ(resolve_rendezvous("inproc://x", 0, 0, reader_of(kPod)).launcher, "kubernetes");
  EXPECT_EQ(resolve_rendezvous("inproc://x", 0, 2, reader_of(kPod)).launcher, "");
  // A number that a start does not need does not hinder it.
  EXPECT_EQ(resolve_rendezvous("inproc://x", 0, 0, reader_of(with(kTorch, {{"LOCAL_RANK", "x"}}))).rank, 2);
}

// Any mixture of variables gives a place whose numbers fit together, or a failure that names one of them.
TEST(Launchers, AnyEnvironmentGivesAPlaceOrAnInvalidArgument) {
  std::mt19937 random(7);
  const std::vector<std::string> values = {"", "0", "1", "2", "7", "-1", "x", "2(x3),1", "99999999999", "1(x2"};
  const Environment all = with(with(with(kOwn, kTorch), with(kStep, kPod)), kMpi);
  int places = 0;
  for (int round = 0; round < 20000; ++round) {
    Environment environment;
    for (const auto& [name, usual] : all) {
      const auto choice = random() % 40;
      if (choice < values.size()) environment[name] = values[choice];
      if (choice > 30) environment[name] = usual;
    }
    try {
      const LaunchPlace place = place_in(environment);
      ++places;
      EXPECT_TRUE(place.world_size == -1 || (place.rank >= 0 && place.rank < place.world_size));
      EXPECT_TRUE(place.local_size == 0 || place.local_rank < place.local_size);
      EXPECT_TRUE(place.node_count == 0 || place.node < place.node_count);
      EXPECT_GE(place.restart, 0);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument) << error.what();
    }
  }
  EXPECT_GT(places, 1000);
}

}  // namespace
}  // namespace distag
