#include "faults/fault_points.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "faults/handshake.h"

extern "C" {
#include "shortage/allocations.h"
}

namespace distag::faults {
namespace {

constexpr int64_t kSecond = 1000000000;
constexpr int64_t kSlowFor = kSecond / 2;
constexpr int64_t kClockJump = 5 * kSecond / 2;
constexpr int64_t kDay = 86400 * kSecond;
constexpr long kRefusedAllocations = 60;

// Both sides of each see the end of it; listeners stay.
void cut_connections() {
  DIR* const listing = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(listing)) {
    const int fd = std::atoi(entry->d_name);
    int type = 0, listens = 0;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) continue;
    size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens == 0) shutdown(fd, SHUT_RDWR);
  }
  closedir(listing);
}

void refuse_memory() {
  const shortage wanted = {1, kRefusedAllocations, 1, 1};
  allocations_count_from_here(&wanted);
}

// The server of etcd in which this process meets others.
void strike_etcd(int signal) {
  const char* const pid = std::getenv("FAULTS_ETCD");
  if (pid != nullptr) kill(std::atoi(pid), signal);
}

}  // namespace

int64_t true_now() {
  timespec time{};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

FaultPoints& fault_points() {
  static FaultPoints points;
  return points;
}

void FaultPoints::arm(std::string step, Way way, std::string fault, int nth) {
  const std::lock_guard<std::mutex> lock(mutex_);
  step_ = std::move(step);
  way_ = way;
  fault_ = std::move(fault);
  left_ = nth;
  is_of_handshake_ = step_.rfind("Curve.", 0) == 0;
  for (const char* each : kHandshakeSteps) steps_[{each, Way::kSent}] = steps_[{each, Way::kArrived}] = 0;
}

bool FaultPoints::disarm() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(left_, 0) == 0;
}

void FaultPoints::mend() {
  const std::lock_guard<std::mutex> lock(mutex_);
  vanishing_ = {};
  slow_until_ = 0;
  is_disk_full_ = false;
  allocations_stop();
}

void FaultPoints::reach(const std::string& step, Way way) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++steps_[{step, way}];
  if (!is_of_messages() && is_due(step, way)) happen();
}

bool FaultPoints::loses(const std::string& step, Way way) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_of_messages() && is_due(step, way)) happen();
  if (vanishing(way) == 0) return false;
  --vanishing(way);
  return true;
}

void FaultPoints::damage(std::string step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  damaged_ = std::move(step);
}

bool FaultPoints::takes_damage(const std::string& step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (damaged_ != step) return false;
  damaged_.clear();
  return true;
}

bool FaultPoints::is_losing(Way way) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return vanishing(way) != 0;
}

void FaultPoints::say(int64_t at) const {
  char line[128];
  const int size = std::snprintf(line, sizeof line, "{\"fault\": \"%s\", \"at\": %lld}\n", fault_.c_str(),
                                 static_cast<long long>(at));
  if (write(STDOUT_FILENO, line, static_cast<size_t>(size)) != size) std::abort();
}

void FaultPoints::happen() {
  if (fault_ == "etcd-kill") strike_etcd(SIGKILL);  // before others begin to mend it
  if (fault_ == "etcd-stop") strike_etcd(SIGSTOP);
  say(true_now());
  if (fault_ == "kill") kill(getpid(), SIGKILL);
  if (fault_ == "stop") kill(getpid(), SIGSTOP);
  if (fault_ == "cut") cut_connections();
  if (fault_ == "lose") vanishing(way_) = 1;
  if (fault_ == "mute") vanishing(Way::kSent) = INT_MAX;
  if (fault_ == "deaf") vanishing(Way::kArrived) = INT_MAX;
  if (fault_ == "slow") slow_until_ = true_now() + kSlowFor;
  if (fault_ == "clock") steady_offset_ = kClockJump;
  if (fault_ == "date") date_offset_ = -kDay;
  if (fault_ == "disk") is_disk_full_ = true;
  if (fault_ == "memory") refuse_memory();
}

std::map<std::pair<std::string, Way>, int> FaultPoints::steps() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return steps_;
}

}  // namespace distag::faults
