#include <gtest/gtest.h>

#include "dist/processes.h"

// The other processes of a group are this program again.
int main(int argc, char** argv) {
  const int status = distag_test::run_if_participant(argc, argv);
  if (status >= 0) return status;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
