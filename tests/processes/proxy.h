#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace distag::testing {

// A tcp port of this machine that is free now.
int free_port();

// Changes the bytes of one direction of one connection, which come in pieces, and gives how many changes it made.
using Change = std::function<uint64_t(std::string& bytes)>;

// A byte now and then: about one in each `between` bytes of all directions, at places that follow from the seed.
std::function<Change()> corrupting(uint64_t seed, size_t between);
// After the handshake of ZMTP with CURVE one box of each `every`, of each direction of all connections together, is
// left out, or is said twice; at most `most` of them.
enum class BoxFault { kCut, kRepeated };
std::function<Change()> spoiling_boxes(BoxFault fault, int every, int most);

// Listens at a tcp port of this machine and hands on what comes, in both directions, as changed on its way.
class Proxy {
 public:
  // `make_change`: for each direction of each connection.
  explicit Proxy(std::function<Change()> make_change);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  // "tcp://127.0.0.1:port" or "ipc:///path"; before that, who connects is dropped.
  void forward_to(const std::string& target);
  std::string endpoint() const;
  uint64_t changed() const { return changed_; }
  uint64_t connections() const { return connections_; }

 private:
  struct Way {
    int to;
    Change change;
  };

  void run();
  void accept_one();
  bool carry(int from, Way& way);
  int dial_target();

  const std::function<Change()> make_change_;
  int listener_ = -1;
  int port_ = 0;
  int stop_[2] = {-1, -1};
  std::map<int, Way> ways_;  // by the descriptor that is read
  std::mutex mutex_;         // guards target_
  std::string target_;
  std::atomic<uint64_t> changed_{0};
  std::atomic<uint64_t> connections_{0};
  std::thread thread_;
};

}  // namespace distag::testing
