#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>

namespace distag::testing {

// A tcp port of this machine that is free now.
int free_port();

// Listens at a tcp port of this machine and hands on what comes, in both directions, but for a byte now and then that
// it changes: about one in each `between` bytes, at places that follow from the seed.
class CorruptingProxy {
 public:
  CorruptingProxy(uint64_t seed, size_t between);
  ~CorruptingProxy();
  CorruptingProxy(const CorruptingProxy&) = delete;
  CorruptingProxy& operator=(const CorruptingProxy&) = delete;

  // "tcp://127.0.0.1:port" or "ipc:///path"; before that, who connects is dropped.
  void forward_to(const std::string& target);
  std::string endpoint() const;
  uint64_t changed() const { return changed_; }

 private:
  void run();
  void accept_one();
  bool carry(int from, int to);
  int dial_target();

  std::mt19937_64 random_;
  const size_t between_;
  size_t until_next_;
  int listener_ = -1;
  int port_ = 0;
  int stop_[2] = {-1, -1};
  std::map<int, int> other_end_;
  std::mutex mutex_;  // guards target_
  std::string target_;
  std::atomic<uint64_t> changed_{0};
  std::thread thread_;
};

}  // namespace distag::testing
