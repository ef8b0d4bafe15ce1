#include "base/threaded_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

namespace distag {
namespace {

constexpr std::array kVariables = {"DISTAG_TEST_THREADS"};
constexpr size_t kBlock = size_t{1} << 20;

// Small, in the C library's package, and linked by nothing here.
constexpr const char* kFile = "libBrokenLocale.so.1";

bool is_loaded(const char* file) {
  void* const handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

class ThreadedLibraryTest : public ::testing::Test {
 protected:
  ThreadedLibraryTest() {
    pthread_getattr_default_np(&before_);
    sched_getaffinity(0, sizeof processors_, &processors_);
    pthread_sigmask(SIG_SETMASK, nullptr, &signals_);
  }
  // The thread is as it was.
  ~ThreadedLibraryTest() override {
    cpu_set_t processors = {};
    sigset_t signals = {};
    sched_getaffinity(0, sizeof processors, &processors);
    pthread_sigmask(SIG_SETMASK, nullptr, &signals);
    EXPECT_TRUE(CPU_EQUAL(&processors, &processors_));
    for (int each = 1; each < SIGRTMIN; ++each) EXPECT_EQ(sigismember(&signals, each), sigismember(&signals_, each));
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

  static void set_stack_size(size_t size) {
    pthread_attr_t attributes = {};
    pthread_attr_init(&attributes);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, size), 0);
    ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  static void leave_no_room_for_threads() { set_stack_size(size_t{1} << 47); }
  // The address space of this process, in bytes.
  static size_t address_space() {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }
  static constexpr size_t kStack = size_t{256} << 20;

  pthread_attr_t before_ = {};
  cpu_set_t processors_ = {};
  sigset_t signals_ = {};
};

TEST_F(ThreadedLibraryTest, IsThereFromLoadToUnload) {
  ThreadedLibrary library({kFile, kVariables, kBlock});
  library.load();
  EXPECT_STREQ(library.lack(), "");
  EXPECT_TRUE(is_loaded(kFile));
  EXPECT_NE(library.find("__ctype_get_mb_cur_max"), nullptr);
  EXPECT_EQ(library.find("distag_no_such_name"), nullptr);
  library.unload();
  EXPECT_FALSE(is_loaded(kFile));
  EXPECT_EQ(library.find("__ctype_get_mb_cur_max"), nullptr);
}

TEST_F(ThreadedLibraryTest, IsThereWithoutRoomForThreads) {
  leave_no_room_for_threads();
  ThreadedLibrary library({kFile, kVariables, kBlock});
  library.load();
  EXPECT_STREQ(library.lack(), "");
  EXPECT_TRUE(is_loaded(kFile));
  library.unload();
}

TEST_F(ThreadedLibraryTest, ALibraryOfOneThreadNeedsRoomForNoOther) {
  const ThreadedLibrary library({kFile, kVariables, kBlock});
  EXPECT_TRUE(library.has_threads(4));
  leave_no_room_for_threads();
  EXPECT_FALSE(library.has_threads(2));
  EXPECT_TRUE(library.has_threads(1));
}

TEST_F(ThreadedLibraryTest, ThereIsNoRoomWhereOnlySomeOfTheThreadsFit) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit few = {address_space() + 3 * kStack, before.rlim_max};
  set_stack_size(kStack);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &few), 0);
  const ThreadedLibrary library({kFile, kVariables, 1});
  const bool has_room = library.has_threads(2);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_FALSE(has_room);
}

TEST_F(ThreadedLibraryTest, ThereIsNoRoomForThreadsWithoutTheirBlocks) {
  const ThreadedLibrary library({kFile, kVariables, size_t{1} << 46});
  EXPECT_FALSE(library.has_threads(2));
}

TEST_F(ThreadedLibraryTest, SaysWhyItIsNotThere) {
  ThreadedLibrary library({"libdistag-no-such.so", kVariables, kBlock});
  library.load();
  EXPECT_NE(std::string(library.lack()).find("libdistag-no-such.so"), std::string::npos) << library.lack();
  EXPECT_EQ(library.find("cbrt"), nullptr);
  EXPECT_EQ(dlerror(), nullptr);
  library.unload();
}

TEST_F(ThreadedLibraryTest, KnowsWhetherThereIsRoomForItsBlocks) {
  ThreadedLibrary small({kFile, kVariables, kBlock});
  small.load();
  EXPECT_FALSE(small.is_space_short());
  EXPECT_TRUE(small.has_block());
  small.unload();
  ThreadedLibrary large({kFile, kVariables, size_t{1} << 46});
  large.load();
  EXPECT_TRUE(large.is_space_short());
  large.unload();
  ThreadedLibrary too_large({kFile, kVariables, size_t{1} << 48});
  too_large.load();
  EXPECT_FALSE(too_large.has_block());
  too_large.unload();
}

}  // namespace
}  // namespace distag
