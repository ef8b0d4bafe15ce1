#include "etcd/etcd_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/base64.h"

namespace distag::testing {
namespace {

using Json = nlohmann::json;

constexpr int kAnswerTime = 120000;  // milliseconds

// A connection to a port of the loopback, or -1.
int connect_to(const std::string& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

std::string read_to_end(int fd) {
  std::string text;
  char bytes[4096];
  for (;;) {
    pollfd ready = {fd, POLLIN, 0};
    if (poll(&ready, 1, kAnswerTime) <= 0) return {};
    const ssize_t count = read(fd, bytes, sizeof bytes);
    if (count <= 0) return text;
    text.append(bytes, static_cast<size_t>(count));
  }
}

}  // namespace

std::string EtcdCluster::find_etcd() {
  const char* const path = std::getenv("PATH");
  std::string rest = path == nullptr ? "/usr/bin" : path;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string candidate = rest.substr(0, colon) + "/etcd";
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest = colon == std::string::npos ? std::string() : rest.substr(colon + 1);
  }
  return {};
}

EtcdCluster::EtcdCluster(int size, EtcdTls tls) : tls_(std::move(tls)) {
  for (int i = 0; i < size; ++i) servers_.push_back(std::make_unique<Server>());
  for (int i = 0; i < size; ++i) start(i);
  if (tls_.certificate.empty()) wait_until_serving();
}

EtcdCluster::~EtcdCluster() {
  for (int i = 0; i < static_cast<int>(servers_.size()); ++i) kill(i);
}

std::vector<std::string> EtcdCluster::command_of(int server) const {
  const auto name = [](int i) { return "e" + std::to_string(i); };
  const Server& own = *servers_[static_cast<size_t>(server)];
  const std::string scheme = tls_.certificate.empty() ? "http" : "https";
  const std::string client = scheme + "://127.0.0.1:" + own.client.number();
  const std::string peer = "http://127.0.0.1:" + own.peer.number();
  std::string all;
  for (int i = 0; i < static_cast<int>(servers_.size()); ++i) {
    const std::string port = servers_[static_cast<size_t>(i)]->peer.number();
    all += (i == 0 ? "" : ",") + name(i) + "=http://127.0.0.1:" + port;
  }
  std::vector<std::string> command = {find_etcd(),
                                      "--name=" + name(server),
                                      "--data-dir=" + directory_.path() + "/" + name(server),
                                      "--listen-client-urls=" + client,
                                      "--advertise-client-urls=" + client,
                                      "--listen-peer-urls=" + peer,
                                      "--initial-advertise-peer-urls=" + peer,
                                      "--initial-cluster=" + all,
                                      "--initial-cluster-state=new",
                                      "--logger=zap"};
  if (!tls_.certificate.empty()) {
    for (const std::string& option : {"--cert-file=" + tls_.certificate, "--key-file=" + tls_.key,
                                      "--trusted-ca-file=" + tls_.authorities, std::string("--client-cert-auth")}) {
      command.push_back(option);
    }
  }
  return command;
}

void EtcdCluster::start(int server) {
  Server& own = *servers_.at(static_cast<size_t>(server));
  std::vector<std::string> command = command_of(server);
  std::vector<char*> arguments;
  for (std::string& text : command) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  std::string architecture = "ETCD_UNSUPPORTED_ARCH=arm64";  // which etcd 3.4 asks for there
  char* environment[] = {architecture.data(), nullptr};
  const std::string log = directory_.path() + "/log" + std::to_string(server);
  own.pid = fork();
  if (own.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // should the test itself be killed
    const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execve(arguments[0], arguments.data(), environment);
    _exit(127);
  }
  own.descriptor = static_cast<int>(syscall(SYS_pidfd_open, own.pid, 0));
}

void EtcdCluster::kill(int server) {
  Server& own = *servers_.at(static_cast<size_t>(server));
  if (own.pid < 0) return;
  ::kill(own.pid, SIGKILL);
  waitpid(own.pid, nullptr, 0);
  close(own.descriptor);
  own.pid = -1;
}

void EtcdCluster::pause(int server) { ::kill(servers_.at(static_cast<size_t>(server))->pid, SIGSTOP); }

std::string EtcdCluster::uri(const std::string& prefix) const {
  std::string text = "etcd://";
  for (size_t i = 0; i < servers_.size(); ++i) {
    text += (i == 0 ? "127.0.0.1:" : ",127.0.0.1:") + servers_[i]->client.number();
  }
  return text + prefix;
}

Json EtcdCluster::ask(int server, const std::string& path, const Json& request, const std::string& token) {
  const int fd = connect_to(servers_.at(static_cast<size_t>(server))->client.number());
  if (fd < 0) return {};
  const std::string body = request.dump();
  const std::string text = "POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: " +
                           std::to_string(body.size()) + (token.empty() ? "" : "\r\nAuthorization: " + token) +
                           "\r\n\r\n" + body;
  const bool is_sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  const std::string answer = is_sent ? read_to_end(fd) : std::string();
  close(fd);
  const size_t begin = answer.find('{');
  if (begin == std::string::npos) return {};
  return Json::parse(answer.substr(begin, answer.rfind('}') + 1 - begin), nullptr, false);
}

Json EtcdCluster::ask(const std::string& path, const Json& request, const std::string& token) {
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i]->pid < 0) continue;
    Json answer = ask(static_cast<int>(i), path, request, token);
    if (!answer.is_null()) return answer;
  }
  return {};
}

void EtcdCluster::wait_until_serving(int server) {
  const Server& own = *servers_.at(static_cast<size_t>(server));
  for (;;) {
    const Json status = ask(server, "/v3/maintenance/status", Json::object());
    if (status.is_object() && status.contains("leader")) return;
    pollfd ended = {own.descriptor, POLLIN, 0};
    if (poll(&ended, 1, 50) > 0) throw std::runtime_error("etcd has ended");
  }
}

void EtcdCluster::wait_until_serving() {
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i]->pid >= 0) wait_until_serving(static_cast<int>(i));
  }
}

int EtcdCluster::leader() {
  for (size_t i = 0; i < servers_.size(); ++i) {
    const Json status = ask(static_cast<int>(i), "/v3/maintenance/status", Json::object());
    if (status.is_object() && status.value("leader", "") == status["header"].value("member_id", "-")) {
      return static_cast<int>(i);
    }
  }
  throw std::runtime_error("no server leads");
}

size_t EtcdCluster::count_keys() {
  const std::string all(1, '\0');
  const Json answer =
      ask("/v3/kv/range", {{"key", to_base64(all)}, {"range_end", to_base64(all)}, {"count_only", true}});
  return std::stoul(answer.value("count", "0"));
}

}  // namespace distag::testing
