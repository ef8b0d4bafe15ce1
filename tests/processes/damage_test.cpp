// Two workers whose tcp connections, the rendezvous among them, go through a proxy that changes bytes.
#include <gtest/gtest.h>

#include <unistd.h>

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
  bool meet(Meeting& meeting, CorruptingProxy& rendezvous, CorruptingProxy (&towards)[2], int run) {
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

// One byte in 256 KiB to 8 MiB, at places of a seed: in headers, payload, greetings and the lengths between them. Where
// one falls into each copy of a value, the sender gives its peer up after 21 s, so one run alone has the 256 KiB.
TEST_F(DamageTest, GivesTheRightValueOrANamedError) {
  int right = 0;
  int met = 0;
  uint64_t changed = 0;
  constexpr int kRuns = 12;
  for (int run = 0; run < kRuns; ++run) {
    std::mt19937_64 random(static_cast<uint64_t>(run));
    const size_t between = run == 0 ? size_t{1} << 18 : size_t{1} << (20 + run % 4);
    CorruptingProxy rendezvous(random(), 2048), towards[2] = {{random(), between}, {random(), between}};
    Meeting meeting;
    if (meet(meeting, rendezvous, towards, run)) {
      ++met;
      right += call_all(meeting, random);
    }
    shut_down(meeting);
    for (CorruptingProxy* proxy : {&rendezvous, &towards[0], &towards[1]}) changed += proxy->changed();
  }
  EXPECT_GT(changed, 100u) << "else nothing was tested";
  EXPECT_GE(met, kRuns / 2);
  EXPECT_GE(right, kRuns * 30 / 2);
  std::printf("%d runs, %d met, %d of %d calls right, %llu bytes changed\n", kRuns, met, right, met * 30,
              static_cast<unsigned long long>(changed));
}

}  // namespace
}  // namespace distag::testing
