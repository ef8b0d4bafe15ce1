// A process of the matrix: a member of a group that does what it is told, line by line, and answers each with a line.
//
//   faults_participant RANK RENDEZVOUS LEASE_MS [BIND [insecure]]
//
//   arm STEP sent|arrived NTH FAULT   see fault_points.h
//   start MS                      {"status", "message"}
//   run PHASE                     [{"what", "status", "message", "begin", "end", "right"}]
//   check NAME...                 likewise: a call and a pass with each of them
//   mend                          {"happened"}: the fault is over
//   told MS NAME                  {"at"}: when it was told that this member is lost; 0: not in that time
//   settle MS                     {"held", "descriptors", "threads"}, once nothing is held or the time is up
//   stop MS                       {"status", "message"}: leaves
//   end                           {"descriptors", "threads", "handles", "steps"}, and the process ends
#include <poll.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "faults/fault_points.h"
#include "faults/member.h"

namespace distag::faults {
namespace {

using Json = nlohmann::json;

// By what they are: "socket", "pipe", "anon_inode", "/memfd", "/" for files. The one that looks is not counted.
std::map<std::string, int> descriptors_by_kind() {
  std::map<std::string, int> kinds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry, gone).string();
    if (!gone && target.rfind("/proc/", 0) != 0) ++kinds[target.substr(0, target.find_first_of(":/", 1))];
  }
  return kinds;
}

struct Resources {
  std::map<std::string, int> descriptors = descriptors_by_kind();
  int64_t threads = std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
};

Json steps_of_this_process() {
  Json steps = Json::object();
  for (const auto& [step, count] : fault_points().steps()) {
    steps[step.first + (step.second == Way::kSent ? " sent" : " arrived")] = count;
  }
  return steps;
}

class Session {
 public:
  explicit Session(const MemberOptions& options) { member_.emplace(options); }

  Json answer(const std::string& command, const std::vector<std::string>& words) {
    if (command == "arm") {
      fault_points().arm(words.at(0), words.at(1) == "sent" ? Way::kSent : Way::kArrived, words.at(3),
                         std::stoi(words.at(2)));
      return Json::object();
    }
    if (command == "start") return member_->start(nanoseconds(words));
    if (command == "run") return run_phase(*member_, words.at(0));
    if (command == "check") return check_with(*member_, words);
    if (command == "mend") {
      fault_points().mend();
      return {{"happened", fault_points().disarm()}};
    }
    if (command == "told") return {{"at", member_->wait_until_told(words.at(1), nanoseconds(words))}};
    if (command == "settle") return settle(nanoseconds(words));
    if (command == "stop") {
      const Json stopped = member_->stop(nanoseconds(words));
      member_.reset();
      return stopped;
    }
    if (command == "end") return end();
    throw std::invalid_argument(command);
  }

 private:
  static int64_t nanoseconds(const std::vector<std::string>& words) {
    return std::stoll(words.at(0)) * DISTAG_MILLISECOND;
  }

  Json settle(int64_t timeout_ns) {
    Json held = member_->settle(timeout_ns);
    const Resources now;
    return {{"held", held}, {"descriptors", now.descriptors}, {"threads", now.threads}};
  }

  // Everything left beyond the state of the process before. A worker that could not be shut down ends on a thread of
  // distag: it gets some seconds for that.
  Json end() const {
    Resources now;
    for (int i = 0; i < 20'000 && (now.descriptors != before_.descriptors || now.threads != before_.threads); ++i) {
      poll(nullptr, 0, 1);
      now = Resources();
    }
    return {{"descriptors", now.descriptors == before_.descriptors ? Json(0) : Json(now.descriptors)},
            {"threads", now.threads - before_.threads},
            {"handles", distag_get_handle_count()},
            {"steps", steps_of_this_process()}};
  }

  const Resources before_;
  std::optional<Member> member_;
};

int serve(int argc, char** argv) {
  if (argc < 4) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MemberOptions options;
  options.rank = std::atoi(argv[1]);
  options.rendezvous = argv[2];
  options.lease_ns = std::atoll(argv[3]) * DISTAG_MILLISECOND;
  if (argc > 4) options.bind = argv[4];
  options.allow_insecure = argc > 5;
  Session session(options);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream stream(line);
    std::string command;
    stream >> command;
    const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    std::cout << session.answer(command, words).dump() + "\n" << std::flush;
    if (command == "end") return 0;
  }
  return 1;
}

}  // namespace
}  // namespace distag::faults

int main(int argc, char** argv) { return distag::faults::serve(argc, argv); }
