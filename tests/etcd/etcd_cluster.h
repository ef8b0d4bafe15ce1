#pragma once

#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "processes/processes.h"

namespace distag::testing {

// Files in PEM of a server and of those that may talk to it. Empty: no TLS.
struct EtcdTls {
  std::string authorities, certificate, key;
};

// Real etcd processes of this machine that are one cluster, in a directory of their own; killed with it.
class EtcdCluster {
 public:
  // Empty where there is no etcd.
  static std::string find_etcd();

  explicit EtcdCluster(int size = 1, EtcdTls tls = {});
  ~EtcdCluster();
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  std::string uri(const std::string& prefix) const;  // "etcd://..."
  void start(int server);
  void kill(int server);
  void pause(int server);  // it answers no client from then on
  // Until this server, or all, know of a leader. Without TLS only.
  void wait_until_serving(int server);
  void wait_until_serving();
  int leader();

  // The answer of a running server to a request; null when it does not answer. Without TLS only.
  nlohmann::json ask(const std::string& path, const nlohmann::json& request, const std::string& token = {});
  nlohmann::json ask(int server, const std::string& path, const nlohmann::json& request, const std::string& token = {});
  size_t count_keys();

 private:
  struct Server {
    ReservedPort client, peer;
    pid_t pid = -1;
    int descriptor = -1;  // of the process
  };

  std::vector<std::string> command_of(int server) const;

  const TemporaryDirectory directory_;
  const EtcdTls tls_;
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace distag::testing
