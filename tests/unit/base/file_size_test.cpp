#include "base/file_size.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace distag {
namespace {

int signals = 0;
void count(int) { ++signals; }

// Counts the signals SIGXFSZ that the host gets.
class FileSizeTest : public ::testing::Test {
 protected:
  FileSizeTest() {
    struct sigaction counts = {};
    counts.sa_handler = count;
    sigaction(SIGXFSZ, &counts, &before_);
    signals = 0;
  }
  ~FileSizeTest() override { sigaction(SIGXFSZ, &before_, nullptr); }

 private:
  struct sigaction before_ = {};
};

TEST_F(FileSizeTest, TheSignalOfTheLimitDoesNotReachTheHost) {
  char path[] = "/tmp/distag_file_size_XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  unlink(path);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit low = {4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &low);
  errno = 0;
  EXPECT_EQ(set_file_size(file, 8192), -1);
  EXPECT_EQ(errno, EFBIG);
  EXPECT_EQ(allocate_file(file, 8192), EFBIG);
  EXPECT_EQ(lseek(file, 4096, SEEK_SET), 4096);
  EXPECT_EQ(write_to_file(file, "x", 1), -1);
  EXPECT_EQ(errno, EFBIG);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(signals, 0);
  close(file);
}

// The number of EFBIG is 27. The host asked the system for its own signal, which comes during the write.
TEST_F(FileSizeTest, AWriteOf27BytesTakesNoSignalOfTheHost) {
  static_assert(EFBIG == 27);
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  fcntl(ends[0], F_SETOWN, getpid());
  fcntl(ends[0], F_SETSIG, SIGXFSZ);
  fcntl(ends[0], F_SETFL, O_ASYNC);
  EXPECT_EQ(write_to_file(ends[1], "twenty-seven bytes, exactly", 27), 27);
  EXPECT_EQ(signals, 1);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace distag
