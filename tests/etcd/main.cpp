#include <gtest/gtest.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "etcd/etcd_cluster.h"

namespace {

int look_for_curl(dl_phdr_info* library, size_t, void* is_there) {
  if (std::strstr(library->dlpi_name, "libcurl") != nullptr) *static_cast<bool*>(is_there) = true;
  return 0;
}

}  // namespace

// The other processes of a group are this program again. 77: there is no etcd, and no need of one.
int main(int argc, char** argv) {
  const int status = distag::testing::run_if_participant(argc, argv);
  if (status >= 0) return status;
  bool has_curl = false;
  dl_iterate_phdr(&look_for_curl, &has_curl);
  if (has_curl) {
    std::fprintf(stderr, "a program gets libcurl by linking distag\n");
    return 1;
  }
  if (distag::testing::EtcdCluster::find_etcd().empty()) {
    std::fprintf(stderr, "there is no etcd: install etcd-server\n");
    return std::getenv("DISTAG_CI") == nullptr ? 77 : 1;
  }
  // Private endpoints of processes that are killed are removed with it.
  const distag::testing::TemporaryDirectory endpoints;
  setenv("XDG_RUNTIME_DIR", endpoints.path().c_str(), 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
