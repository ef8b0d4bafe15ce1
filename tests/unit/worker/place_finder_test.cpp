#include "worker/place_finder.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/sim_lanes.h"
#include "support/sim_scheduler.h"

namespace distag {
namespace {

using sim::SimExecutor;
using sim::SimLoop;
using sim::SimScheduler;

class PlaceFinderTest : public testing::Test {
 protected:
  PlaceFinderTest() {
    options_.rank = 1;
    options_.world_size = 2;
    options_.rendezvous = "tcp://head:4000";
    options_.bind = "tcp://me:0";
    tools_.get_environment = [](const char*) -> const char* { return nullptr; };
    tools_.resolve_address = [](const std::string& address) {
      if (address == "tcp://nowhere:0") fail(Status::kNotFound, "no such host");
      return address.empty() ? address : "number of " + address;
    };
  }

  void find(Nanos deadline = kNever) {
    if (finder_ == nullptr) finder_ = std::make_shared<PlaceFinder>(loop_, compute_, tools_);
    loop_.run([this, deadline] {
      finder_->find(options_, deadline, [this](const Places& found, const std::optional<Error>& error) {
        found_.push_back(found);
        errors_.push_back(error ? error->message() : "");
      });
    });
  }

  SimScheduler scheduler_{1};
  SimLoop loop_{scheduler_, "loop"};
  SimExecutor compute_{scheduler_, "compute"};
  WorkerOptions options_;
  PlaceTools tools_;
  std::shared_ptr<PlaceFinder> finder_;
  std::vector<Places> found_;
  std::vector<std::string> errors_;
};

TEST_F(PlaceFinderTest, AddressesAreLeftAsGivenWithoutANameServer) {
  tools_.resolve_address = nullptr;
  find();
  ASSERT_EQ(errors_, std::vector<std::string>{""});
  EXPECT_EQ(found_[0].target.uri, "tcp://head:4000");
  EXPECT_EQ(found_[0].bind, "tcp://me:0");
}

TEST_F(PlaceFinderTest, WhatHasNoNameIsThereAtOnceWhateverTheDeadline) {
  for (const char* const uri : {"inproc://group", "file:///tmp/group"}) {
    options_.rendezvous = uri;
    options_.bind = "ipc:///tmp/own";
    find(0);
    ASSERT_EQ(errors_, std::vector<std::string>{""}) << "within the call";
    EXPECT_EQ(found_[0].target.uri, uri);
    errors_.clear();
    found_.clear();
  }
  EXPECT_EQ(loop_.timer_count(), 0U);
}

TEST_F(PlaceFinderTest, AddressesBecomeNumbersOffTheLoop) {
  tools_.own_address_towards = [](const std::string& address) { return "own towards " + address; };
  find();
  EXPECT_TRUE(errors_.empty());
  scheduler_.run_for(kSecond);
  ASSERT_EQ(errors_, std::vector<std::string>{""});
  EXPECT_EQ(found_[0].target.uri, "number of tcp://head:4000");
  EXPECT_EQ(found_[0].bind, "number of tcp://me:0");
  EXPECT_EQ(found_[0].advertise, "");
  EXPECT_EQ(found_[0].own_host, "own towards number of tcp://head:4000");
}

TEST_F(PlaceFinderTest, AnAddressWithoutANumberIsNamedByItsOption) {
  options_.bind = "tcp://nowhere:0";
  find();
  scheduler_.run_for(kSecond);
  EXPECT_EQ(errors_, std::vector<std::string>{"bind: no such host"});
}

TEST_F(PlaceFinderTest, TheDeadlineIsTheResultWhereTheNameServerIsMute) {
  compute_.freeze();
  find(scheduler_.now() + kSecond);
  scheduler_.run_for(2 * kSecond);
  const std::vector<std::string> expected{
      "no address was known in time: the timeout is too short, or the name server is mute; give numbers"};
  EXPECT_EQ(errors_, expected);
  compute_.thaw();
  scheduler_.run_for(kSecond);
  EXPECT_EQ(errors_, expected);
}

TEST_F(PlaceFinderTest, AStoppedSearchHasNoResultAndTheNextOneHasItsOwn) {
  compute_.freeze();
  find(scheduler_.now() + kSecond);
  loop_.run([this] { finder_->stop(); });
  EXPECT_EQ(loop_.timer_count(), 0U);
  options_.rendezvous = "tcp://other:4000";
  find();
  compute_.thaw();
  scheduler_.run_for(2 * kSecond);
  ASSERT_EQ(errors_, std::vector<std::string>{""});
  EXPECT_EQ(found_[0].target.uri, "number of tcp://other:4000");
}

TEST_F(PlaceFinderTest, AWorldWhoseSizePmixTellsNeedsPmix) {
  options_.rendezvous = "pmix://";
  options_.rank = -1;
  options_.world_size = 0;
  tools_.get_environment = [](const char* name) -> const char* {
    const std::string_view wanted = name;
    return wanted == "PMIX_RANK" ? "0" : wanted == "PMIX_NAMESPACE" ? "job" : nullptr;
  };
  try {
    find();
    FAIL() << "it began";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kUnsupported);
  }
}

}  // namespace
}  // namespace distag
