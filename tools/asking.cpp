#include "asking.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>

#include "files.h"
#include "run/descriptor.h"

namespace distag_tool {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostAtOnce = 200;  // connections
constexpr size_t kMostAnswer = size_t{64} << 20;
constexpr int kRetryMs = 10;
constexpr int kDeepestAnswer = 32;

// "1234.0123456789abcdef"
bool is_socket_name(const std::string& name) {
  const size_t dot = name.find('.');
  return dot != std::string::npos && dot > 0 && dot < 12 && name.size() == dot + 17 &&
         name.find_first_not_of("0123456789") == dot &&
         name.find_first_not_of("0123456789abcdef", dot + 1) == std::string::npos;
}

// The folders of this user's sockets, each once.
std::vector<std::string> find_folders() {
  std::vector<std::string> found;
  std::set<std::pair<dev_t, ino_t>> seen;
  const std::string user = std::to_string(geteuid());
  const std::string own = "/run/user/" + user;
  const char* const bases[] = {std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR"), "/tmp", own.c_str()};
  for (const char* base : bases) {
    if (base == nullptr || base[0] != '/') continue;
    const std::string folder = std::string(base) + "/distag-ps." + user;
    struct stat status = {};
    if (lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) continue;
    if (status.st_uid != geteuid() || (status.st_mode & 0777) != 0700) continue;
    if (seen.insert({status.st_dev, status.st_ino}).second) found.push_back(folder);
  }
  return found;
}

enum class Dialled { kOpen, kBusy, kDead, kGone };

Dialled dial(const std::string& path, Descriptor& to) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Dialled::kGone;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  to = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (to.get() < 0) return Dialled::kBusy;
  if (connect(to.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return Dialled::kOpen;
  const int error = errno;
  to = Descriptor();
  return error == EAGAIN ? Dialled::kBusy : error == ECONNREFUSED ? Dialled::kDead : Dialled::kGone;
}

char state_of(int64_t process) {
  const std::string line = read_text("/proc/" + std::to_string(process) + "/stat");
  const size_t end = line.rfind(')');
  return end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
}

// Whether the path is a socket, and nothing else that was put there.
bool is_socket(const std::string& path) {
  struct stat found = {};
  return lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode);
}

std::string why_silent(const LocalWorker& worker) {
  const char state = state_of(worker.process);
  if (state == 'T' || state == 't') return "is stopped (state T): send it SIGCONT, or leave the debugger";
  if (state == 'Z' || state == '?') return "has ended";
  return "does not answer";
}

// A text that is nested deeper than a worker's answer would be copied by recursion as deep.
bool is_shallow(const std::string& text) {
  int depth = 0;
  bool is_in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_text && c == '\\') {
      ++i;
    } else if (c == '"') {
      is_in_text = !is_in_text;
    } else if (!is_in_text && (c == '{' || c == '[')) {
      if (++depth > kDeepestAnswer) return false;
    } else if (!is_in_text && (c == '}' || c == ']')) {
      --depth;
    }
  }
  return true;
}

// A question to one worker, and its answer.
struct Talk {
  LocalWorker* worker;
  Descriptor socket;
  std::string text;
  bool is_over = false;

  void begin(const std::string& question);
  void read_some();
  void end(std::string silent);
};

void Talk::end(std::string silent) {
  is_over = true;
  socket = Descriptor();
  worker->silent = std::move(silent);
  worker->answer = nullptr;
  if (!worker->silent.empty()) return;
  if (is_shallow(text)) worker->answer = nlohmann::json::parse(text, nullptr, false);
  if (!worker->answer.is_object()) {
    worker->answer = nullptr;
    worker->silent = "its answer cannot be read";
  }
}

void Talk::begin(const std::string& question) {
  switch (dial(worker->path, socket)) {
    case Dialled::kBusy:
      return;  // tries again
    case Dialled::kDead:
      if (is_socket(worker->path)) unlink(worker->path.c_str());
      rmdir(fs::path(worker->path).parent_path().c_str());  // if it was the last worker
      [[fallthrough]];
    case Dialled::kGone:
      worker->is_gone = true;
      return end("has ended");
    case Dialled::kOpen:
      break;
  }
  ucred other = {};
  socklen_t size = sizeof other;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.pid > 0) {
    worker->process = other.pid;
  }
  const std::string line = question + "\n";
  if (send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    end("does not answer");
  }
}

void Talk::read_some() {
  char bytes[65536];
  const ssize_t size = recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (size > 0) text.append(bytes, static_cast<size_t>(size));
  if (size == 0) return end(text.empty() ? "does not answer" : "");
  if (text.size() > kMostAnswer) return end("its answer is too long");
  if (size < 0 && errno != EAGAIN && errno != EINTR) end("has ended");
}

void ask_some(std::span<LocalWorker> workers, const std::string& question, int timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  std::vector<Talk> talks;
  for (LocalWorker& worker : workers) talks.push_back({&worker, Descriptor(), {}, false});
  for (;;) {
    std::vector<pollfd> waiting;
    std::vector<Talk*> those;
    bool is_busy = false;
    for (Talk& talk : talks) {
      if (!talk.is_over && talk.socket.get() < 0) talk.begin(question);
      if (talk.is_over) continue;
      if (talk.socket.get() < 0) {
        is_busy = true;
      } else {
        waiting.push_back({talk.socket.get(), POLLIN, 0});
        those.push_back(&talk);
      }
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if ((waiting.empty() && !is_busy) || left <= 0) break;
    poll(waiting.data(), waiting.size(),
         is_busy ? std::min<int>(kRetryMs, static_cast<int>(left)) : static_cast<int>(left));
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) those[i]->read_some();
    }
  }
  for (Talk& talk : talks) {
    if (!talk.is_over) talk.end(why_silent(*talk.worker));
  }
}

}  // namespace

std::vector<LocalWorker> find_workers() {
  std::vector<LocalWorker> workers;
  for (const std::string& folder : find_folders()) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (!is_socket_name(name)) continue;
      const size_t dot = name.find('.');
      LocalWorker worker;
      worker.path = entry->path().string();
      worker.id = name.substr(dot + 1);
      worker.process = std::strtoll(name.c_str(), nullptr, 10);
      workers.push_back(std::move(worker));
    }
  }
  std::sort(workers.begin(), workers.end(), [](const LocalWorker& one, const LocalWorker& other) {
    return std::pair(one.process, one.id) < std::pair(other.process, other.id);
  });
  return workers;
}

void ask(std::vector<LocalWorker>& workers, const std::string& question, int timeout_ms) {
  for (size_t begin = 0; begin < workers.size(); begin += kMostAtOnce) {
    const size_t count = std::min(kMostAtOnce, workers.size() - begin);
    ask_some(std::span(workers).subspan(begin, count), question, timeout_ms);
  }
  std::erase_if(workers, [](const LocalWorker& worker) { return worker.is_gone; });
}

}  // namespace distag_tool
