// Two workers whose tcp connections go through a proxy that changes bytes, or leaves out boxes of CURVE and says them
// twice.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "processes/handles.h"
#include "processes/proxy.h"

namespace distag::testing {
namespace {

struct Meeting {
  Worker first, second;
  Future starts[2];
};

// Ends the pair, however the bytes fall.
void shut_down(Meeting& meeting) {
  Future ends[2];
  distag_worker* workers[] = {meeting.first.get(), meeting.second.get()};
  for (int i = 0; i < 2; ++i) distag_worker_shutdown_async(workers[i], 5 * DISTAG_SECOND, ends[i].out(), nullptr);
  for (Future& end : ends) distag_future_wait(end.get(), DISTAG_FOREVER, nullptr);
}

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() : directory_(std::filesystem::temp_directory_path() / ("distag-damage-" + std::to_string(getpid()))) {
    std::filesystem::create_directory(directory_);
  }
  ~DamageTest() override { std::filesystem::remove_all(directory_); }

  // False when they did not meet, for a named reason.
  bool meet(Meeting& meeting, Proxy& rendezvous, Proxy (&towards)[2], int run) {
    const std::string host = "tcp://127.0.0.1:" + std::to_string(free_port());
    rendezvous.forward_to(host);
    Worker* workers[] = {&meeting.first, &meeting.second};
    distag_error error = DISTAG_ERROR_INIT;
    for (int rank = 0; rank < 2; ++rank) {
      const std::string bind = "ipc://" + (directory_ / (std::to_string(run) + "-" + std::to_string(rank))).string();
      towards[rank].forward_to(bind);
      distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
      security.allow_insecure = 1;  // with a key no damage would come through
      distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
      options.security = &security;
      options.rank = rank;
      options.world_size = 2;
      const std::string shown = towards[rank].endpoint();
      const std::string uri = rank == 0 ? host : rendezvous.endpoint();
      options.bind = bind.c_str();
      options.advertise = shown.c_str();
      options.rendezvous = uri.c_str();
      distag_worker_create(&options, workers[rank]->out(), &error);
      distag_worker_start_async(workers[rank]->get(), 20 * DISTAG_SECOND, meeting.starts[rank].out(), &error);
    }
    for (Future& start : meeting.starts) distag_future_wait(start.get(), DISTAG_FOREVER, &error);
    return error.code == DISTAG_OK;
  }

  // The number of right answers; every other call has to fail by its deadline with a name that fits.
  int call_all(Meeting& meeting, std::mt19937_64& random) {
    int right = 0;
    for (int i = 0; i < 30; ++i) {
      const int64_t count = int64_t{1} << random() % 20;  // up to 2 MiB
      const bool back = random() % 2 != 0;
      Tensor x;
      std::vector<float> values(static_cast<size_t>(count)), out(values.size());
      for (float& value : values) value = static_cast<float>(random() % 1000);
      distag_tensor_create(values.data(), values.size() * 4, DISTAG_FLOAT32, &count, 1, x.out(), nullptr);
      distag_value* args[] = {distag_tensor_as_value(x.get())};
      Value answer;
      distag_tensor* result = nullptr;
      distag_error error = DISTAG_ERROR_INIT;
      distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
      options.timeout_ns = 10 * DISTAG_SECOND;
      distag_call(back ? meeting.second.get() : meeting.first.get(), nullptr, back ? "worker0" : "worker1", "neg", args,
                  1, &options, answer.out(), &error);
      distag_value_get_tensor(answer.get(), &result, &error);
      distag_tensor_copy_data(result, out.data(), out.size() * 4, &error);
      if (error.code != DISTAG_OK) {
        EXPECT_TRUE(error.code == DISTAG_E_DEADLINE || error.code == DISTAG_E_DISCONNECTED) << error.message;
        continue;
      }
      for (size_t k = 0; k < out.size(); ++k) {
        if (out[k] == -values[k]) continue;
        ADD_FAILURE() << "value " << k << " of " << count << " came as " << out[k] << ", not " << -values[k];
        return right;
      }
      ++right;
    }
    return right;
  }

  const std::filesystem::path directory_;
};

// A byte is changed in each 256 KiB to 8 MiB, at places of a seed: in headers, payload, greetings and lengths. If each
// copy of a value is hit, the sender gives its peer up after 21 s: so only one run has the 256 KiB.
TEST_F(DamageTest, GivesTheRightValueOrANamedError) {
  int right = 0;
  int met = 0;
  uint64_t changed = 0;
  constexpr int kRuns = 12;
  for (int run = 0; run < kRuns; ++run) {
    std::mt19937_64 random(static_cast<uint64_t>(run));
    const size_t between = run == 0 ? size_t{1} << 18 : size_t{1} << (20 + run % 4);
    Proxy rendezvous(corrupting(random(), 2048));
    Proxy towards[2] = {Proxy(corrupting(random(), between)), Proxy(corrupting(random(), between))};
    Meeting meeting;
    if (meet(meeting, rendezvous, towards, run)) {
      ++met;
      right += call_all(meeting, random);
    }
    shut_down(meeting);
    for (Proxy* proxy : {&rendezvous, &towards[0], &towards[1]}) changed += proxy->changed();
  }
  EXPECT_GT(changed, 100u) << "else nothing was tested";
  EXPECT_GE(met, kRuns / 2);
  EXPECT_GE(right, kRuns * 30 / 2);
  std::printf("%d runs, %d met, %d of %d calls right, %llu bytes changed\n", kRuns, met, right, met * 30,
              static_cast<unsigned long long>(changed));
}

// ---- boxes of CURVE, by each engine ----

struct Spoiled {
  uint32_t engine;
  BoxFault fault;
};

distag_status count_up(void* user_data, distag_invocation* invocation, distag_error* error) {
  ++*static_cast<std::atomic<int>*>(user_data);
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), error);
}

class SpoiledBoxesTest : public DamageTest, public ::testing::WithParamInterface<Spoiled> {};

// The connection is given up and dialled again, and each call runs once. One link is spoiled: what is left out on both
// ways within a lease may end a peer.
TEST_P(SpoiledBoxesTest, EachCallRunsOnce) {
  constexpr int kCalls = 60, kEvery = 17, kMost = 2;
  std::atomic<int> ran{0};
  Proxy towards[2] = {Proxy([]() -> Change { return [](std::string&) { return uint64_t{0}; }; }),
                      Proxy(spoiling_boxes(GetParam().fault, kEvery, kMost))};
  Meeting meeting;
  Worker* workers[] = {&meeting.first, &meeting.second};
  distag_error error = DISTAG_ERROR_INIT;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string bind = "tcp://127.0.0.1:" + std::to_string(free_port());
    towards[rank].forward_to(bind);
    distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
    security.group_key = "a key of 32 or more characters, of a group";
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    const std::string shown = towards[rank].endpoint(), uri = "file://" + directory_.string();
    options.security = &security;
    options.rank = rank;
    options.world_size = 2;
    options.bind = bind.c_str();
    options.advertise = shown.c_str();
    options.rendezvous = uri.c_str();
    options.socket_engine = GetParam().engine;
    options.lease_ns = 4 * DISTAG_SECOND;  // what is left out is missed after half of it
    distag_worker_create(&options, workers[rank]->out(), &error);
    distag_worker_register(workers[rank]->get(), "count_up", count_up, &ran, nullptr, nullptr, &error);
    distag_worker_start_async(workers[rank]->get(), 120 * DISTAG_SECOND, meeting.starts[rank].out(), &error);
  }
  for (Future& start : meeting.starts) distag_future_wait(start.get(), DISTAG_FOREVER, &error);
  ASSERT_EQ(error.code, DISTAG_OK) << error.message;
  for (int i = 0; i < kCalls; ++i) {
    Value sent, answer;
    int64_t number = -1;
    distag_value_create_int64(i, sent.out(), &error);
    distag_value* args[] = {sent.get()};
    distag_call(workers[i % 2]->get(), nullptr, i % 2 == 0 ? "worker1" : "worker0", "count_up", args, 1, nullptr,
                answer.out(), &error);
    distag_value_get_int64(answer.get(), &number, &error);
    ASSERT_EQ(error.code, DISTAG_OK) << i << ": " << error.message;
    EXPECT_EQ(number, i);
  }
  EXPECT_EQ(ran, kCalls);
  shut_down(meeting);
  EXPECT_EQ(towards[1].changed(), uint64_t{kMost});
  EXPECT_GT(towards[1].connections(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Engines, SpoiledBoxesTest,
                         ::testing::Values(Spoiled{DISTAG_SOCKET_ENGINE_ZMQ, BoxFault::kCut},
                                           Spoiled{DISTAG_SOCKET_ENGINE_ZMQ, BoxFault::kRepeated},
                                           Spoiled{DISTAG_SOCKET_ENGINE_ZMTP, BoxFault::kCut},
                                           Spoiled{DISTAG_SOCKET_ENGINE_ZMTP, BoxFault::kRepeated}),
                         [](const ::testing::TestParamInfo<Spoiled>& spoiled) {
                           return std::string(spoiled.param.engine == DISTAG_SOCKET_ENGINE_ZMQ ? "zmq" : "zmtp") +
                                  (spoiled.param.fault == BoxFault::kCut ? "_cut" : "_repeated");
                         });

}  // namespace
}  // namespace distag::testing
