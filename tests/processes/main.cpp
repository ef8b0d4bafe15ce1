#include <gtest/gtest.h>

#include <cstdlib>

#include "processes/processes.h"

// The other processes of a group are this program again.
int main(int argc, char** argv) {
  const int status = distag::testing::run_if_participant(argc, argv);
  if (status >= 0) return status;
  // Private endpoints of processes that are killed are removed with it.
  const distag::testing::TemporaryDirectory endpoints;
  setenv("XDG_RUNTIME_DIR", endpoints.path().c_str(), 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
