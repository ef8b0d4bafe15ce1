#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "session/dial_line.h"
#include "session_harness.h"

namespace distag {

inline constexpr Nanos kDialLease = 5 * kSecond;
inline constexpr size_t kOthers = 20;

// A worker, and many peers that it knows.
class FirstDialsTest : public testing::Test {
 protected:
  void make(uint64_t seed = 1) {
    others.clear();
    a.reset();
    network.reset();
    scheduler = std::make_unique<SimScheduler>(seed);
    network = std::make_unique<SimNetwork>(*scheduler);
    a = std::make_unique<Node>(*scheduler, *network, "a", 0);
    for (size_t i = 0; i < kOthers; ++i) {
      others.push_back(std::make_unique<Node>(*scheduler, *network, name_of(i), static_cast<int32_t>(i) + 1));
      a->know(*others.back());
      others.back()->know(*a);
    }
  }
  ~FirstDialsTest() override {
    others.clear();
    a.reset();
  }

  static std::string name_of(size_t i) { return "o" + std::to_string(i); }
  bool run_until(const std::function<bool()>& condition, Nanos timeout = 60 * kSecond) {
    return scheduler->run_until(condition, timeout);
  }
  // In one task, as by a start.
  void say_to_all() {
    a->loop.run([this] {
      for (const auto& other : others) a->session->send(other->id(), wire::ShutdownVerdict{1});
    });
  }
  size_t count_heard() const {
    return static_cast<size_t>(
        std::count_if(others.begin(), others.end(), [](const auto& other) { return !other->heard.empty(); }));
  }
  bool is_connected(size_t i) {
    bool is = false;
    a->loop.run([&] { is = a->session->is_connected(others[i]->id()); });
    return is;
  }
  // Dials of a to the first ones hear no more than bytes that lead to nothing; its line is full of them.
  void fill_line(Nanos every) {
    for (size_t i = 0; i < DialLine::kAtOnce; ++i) network->let_drip(name_of(i), every);
    a->loop.run([this] {
      for (size_t i = 0; i < DialLine::kAtOnce; ++i) a->session->send(others[i]->id(), wire::ShutdownVerdict{1});
    });
    scheduler->run_for(kMillisecond);
  }

  std::unique_ptr<SimScheduler> scheduler;
  std::unique_ptr<SimNetwork> network;
  std::unique_ptr<Node> a;
  std::vector<std::unique_ptr<Node>> others;
};

}  // namespace distag
