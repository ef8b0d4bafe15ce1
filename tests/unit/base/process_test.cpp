#include "base/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace distag {
namespace {

TEST(ProcessGeneration, StaysWithinAProcessAndChangesInAForkedChild) {
  const uint32_t before = process_generation();
  EXPECT_NE(before, 0u);
  EXPECT_EQ(process_generation(), before);
  const pid_t child = fork();
  if (child == 0) {
    const uint32_t in_child = process_generation();
    _exit(in_child != before && in_child != 0 && in_child == process_generation() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(process_generation(), before);
}

}  // namespace
}  // namespace distag
