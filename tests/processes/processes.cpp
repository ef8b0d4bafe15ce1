#include "processes/processes.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

extern char** environ;

namespace distag::testing {
namespace {

constexpr const char* kParticipant = "--participant";

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "distag-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp: " + pattern);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

// Bound and not listening, with an address that may be used again, as libzmq makes its own.
ReservedPort::ReservedPort() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int yes = 1;
  setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(descriptor_, reinterpret_cast<sockaddr*>(&address), size) != 0) throw std::runtime_error("bind");
  getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size);
  number_ = ntohs(address.sin_port);
}

ReservedPort::~ReservedPort() { close(descriptor_); }

Process::Process(const ParticipantOptions& options, const std::map<std::string, std::string>& environment) {
  std::vector<std::string> arguments = {"processes_tests",
                                        kParticipant,
                                        std::to_string(options.rank),
                                        std::to_string(options.world_size),
                                        options.rendezvous,
                                        std::to_string(options.thread_count),
                                        std::to_string(options.lease_ns),
                                        options.job};
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!environment.contains(text.substr(0, text.find('=')))) variables.push_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  if (posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, pointers_to(arguments).data(),
                  pointers_to(variables).data()) != 0) {
    throw std::runtime_error("posix_spawn");
  }
  descriptor_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
}

Process::~Process() {
  kill();
  wait(-1);
}

void Process::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

int Process::wait(int timeout_ms) {
  if (pid_ < 0) return 0;
  pollfd ended = {descriptor_, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&ended, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  close(descriptor_);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

Group::Group(const GroupOptions& options) {
  ParticipantOptions participant;
  participant.world_size = options.size;
  participant.rendezvous = "file://" + directory_.path();
  participant.thread_count = options.thread_count;
  participant.lease_ns = options.lease_ns;
  for (int rank = 1; rank < options.size; ++rank) {
    participant.rank = rank;
    others_.push_back(std::make_unique<Process>(participant));
  }
  participant.rank = 0;
  self_ = std::make_unique<Participant>(participant);
  distag_error err = DISTAG_ERROR_INIT;
  if (self_->start(120 * DISTAG_SECOND, &err) != DISTAG_OK) throw std::runtime_error(text_of(err));
}

Group::~Group() {
  if (!is_down_) self_->shutdown(0, nullptr, nullptr);
}

void Group::expect_clean_shutdown() {
  is_down_ = true;
  distag_error err = DISTAG_ERROR_INIT;
  Value report;
  self_->shutdown(120 * DISTAG_SECOND, report.out(), &err);
  int32_t clean = 0;
  distag_value_get_bool(distag_value_get_entry(report.get(), "clean"), &clean, &err);
  EXPECT_EQ(err.code, DISTAG_OK) << err.message;
  EXPECT_EQ(clean, 1);
  for (size_t i = 0; i < others_.size(); ++i) EXPECT_EQ(others_[i]->wait(120000), 0) << "rank " << i + 1;
}

int run_if_participant(int argc, char** argv) {
  if (argc < 8 || std::strcmp(argv[1], kParticipant) != 0) return -1;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // should the test itself be killed
  ParticipantOptions options;
  options.rank = std::atoi(argv[2]);
  options.world_size = std::atoi(argv[3]);
  options.rendezvous = argv[4];
  options.thread_count = static_cast<unsigned>(std::atoi(argv[5]));
  options.lease_ns = std::atoll(argv[6]);
  options.job = argv[7];
  return run_participant(options);
}

std::vector<int64_t> call_for_numbers(distag_worker* worker, const char* to, const char* function,
                                      distag_context* context) {
  distag_error err = DISTAG_ERROR_INIT;
  Value answer;
  distag_call(worker, context, to, function, nullptr, 0, nullptr, answer.out(), &err);
  std::vector<int64_t> numbers;
  if (distag_value_get_kind(answer.get()) == DISTAG_VALUE_INT64) {
    distag_value_get_int64(answer.get(), &numbers.emplace_back(), &err);
  }
  for (size_t i = 0; i < distag_value_get_count(answer.get()); ++i) {
    distag_value_get_int64(distag_value_get_item(answer.get(), i), &numbers.emplace_back(), &err);
  }
  EXPECT_EQ(err.code, DISTAG_OK) << err.message;
  return numbers;
}

std::string text_of(const distag_error& err) {
  return std::string(distag_status_get_name(err.code)) + ": " + err.message;
}

}  // namespace distag::testing
