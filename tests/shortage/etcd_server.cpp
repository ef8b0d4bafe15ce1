#include "shortage/etcd_server.h"

#include <dlfcn.h>

#include <cstdio>
#include <memory>

#include "base/base64.h"
#include "etcd/etcd_cluster.h"

using distag::to_base64;
using distag::testing::EtcdCluster;

namespace {

// The server of the sweep, and of the runs that are forked from it.
std::unique_ptr<EtcdCluster> server;

}  // namespace

int etcd_server_start() {
  if (EtcdCluster::find_etcd().empty()) return 0;
  try {
    server = std::make_unique<EtcdCluster>();
  } catch (...) {
    return 0;
  }
  return 1;
}

void etcd_server_stop() { server.reset(); }

void etcd_server_load_client() {
  using Initialise = long(long flags);
  constexpr long kDefault = 3;
  void *const library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return;
  auto *const initialise = reinterpret_cast<Initialise *>(dlsym(library, "curl_global_init"));
  if (initialise != nullptr) initialise(kDefault);
}

void etcd_server_write_uri(const char *prefix, char *uri, size_t size) {
  std::snprintf(uri, size, "%s", server->uri(prefix).c_str());
}

long etcd_server_count_keys(const char *prefix) {
  const std::string begin = std::string(prefix) + "/", end = std::string(prefix) + "0";  // '0' comes after '/'
  const nlohmann::json answer =
      server->ask("/v3/kv/range", {{"key", to_base64(begin)}, {"range_end", to_base64(end)}, {"count_only", true}});
  if (!answer.is_object() || !answer.contains("header")) return -1;
  return std::stol(answer.value("count", "0"));
}
