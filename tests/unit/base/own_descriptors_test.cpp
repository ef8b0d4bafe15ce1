#include "base/own_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

namespace distag {
namespace {

// A pair of sockets, of which the first is an own descriptor.
struct Pair {
  Pair() {
    int both[2] = {-1, -1};
    own = OwnDescriptors::open(
        [&both] { return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) == 0 ? both[0] : -1; });
    other = both[1];
  }
  ~Pair() { close(other); }

  int own = -1;
  int other = -1;
};

bool has_hung_up(int socket) {
  pollfd waiting = {socket, POLLIN, 0};
  char byte = 0;
  return poll(&waiting, 1, 120'000) == 1 && read(socket, &byte, 1) == 0;
}

// The number, after the body has run in a forked child.
template <typename Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(OwnDescriptorsTest, AChildThatLivesOnKeepsNoneOfThem) {
  std::vector<Pair> pairs(200);
  int done[2];
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(done[1]);
    _exit(read(done[0], &byte, 1) == 0 ? 0 : 1);
  }
  for (Pair& pair : pairs) {
    OwnDescriptors::close(pair.own);
    EXPECT_TRUE(has_hung_up(pair.other));
  }
  int status = -1;
  close(done[1]);
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(done[0]);
}

TEST(OwnDescriptorsTest, TheirNumbersStayTakenInTheChildUntilTheyAreClosed) {
  Pair pair;
  EXPECT_EQ(in_child([&pair] {
              const bool is_taken = fcntl(pair.own, F_GETFD) == FD_CLOEXEC;
              const bool is_nothing = write(pair.own, "", 1) != 1;
              OwnDescriptors::close(pair.own);
              return is_taken && is_nothing && fcntl(pair.own, F_GETFD) < 0 ? 0 : 1;
            }),
            0);
  EXPECT_EQ(write(pair.own, "x", 1), 1);  // the parent's is as it was
  OwnDescriptors::close(pair.own);
}

// A thread that opens and closes may be in the middle of that, and is not there in the child.
TEST(OwnDescriptorsTest, AChildOpensAndGivesUpOwnOnesWhateverOtherThreadsDidAtTheFork) {
  Pair pair;
  std::atomic<bool> is_over{false};
  std::thread other([&is_over] {
    while (!is_over) {
      std::vector<Pair> pairs(70);  // more than there is room for at first
      for (const Pair& each : pairs) OwnDescriptors::close(each.own);
    }
  });
  for (int turn = 0; turn < 200; ++turn) {
    EXPECT_EQ(in_child([&pair] {
                alarm(60);
                Pair later;
                const int result = write(pair.own, "", 1) == 1 || write(later.own, "x", 1) != 1 ? 1 : 0;
                OwnDescriptors::close(later.own);
                return result;
              }),
              0);
  }
  is_over = true;
  other.join();
  OwnDescriptors::close(pair.own);
}

TEST(OwnDescriptorsTest, AChildWithoutAFreeNumberGivesThemUpAsWell) {
  Pair pair;
  Pair second;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  int result = in_child([&] { return write(pair.own, "", 1) == 1 || write(second.own, "", 1) == 1 ? 1 : 0; });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(result, 0);
  OwnDescriptors::close(pair.own);
  OwnDescriptors::close(second.own);
}

// The socket is of another library; a child gives the number up while it is still that socket.
TEST(OwnDescriptorsTest, AChildGivesUpANotedSocketUnlessItsNumberIsAnothers) {
  int pair[2];
  int other[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
  NotedSocket noted(pair[0]);
  const auto can_write = [&pair] { return write(pair[0], "x", 1) == 1 ? 1 : 0; };
  EXPECT_EQ(in_child(can_write), 0);
  EXPECT_EQ(can_write(), 1);                    // the parent's is as it was
  ASSERT_EQ(dup2(other[0], pair[0]), pair[0]);  // it was closed, and the number is a file of the host
  EXPECT_EQ(WEXITSTATUS(in_child(can_write)), 1);
  noted = NotedSocket(pair[0]);
  EXPECT_EQ(in_child(can_write), 0);
  noted = NotedSocket();
  EXPECT_EQ(WEXITSTATUS(in_child(can_write)), 1);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const NotedSocket none(pipes[1]);
  EXPECT_EQ(WEXITSTATUS(in_child([&pipes] { return write(pipes[1], "x", 1) == 1 ? 1 : 0; })), 1);
  for (const int fd : {pair[0], pair[1], other[0], other[1], pipes[0], pipes[1]}) close(fd);
}

TEST(OwnDescriptorsTest, WhatCannotBeOpenedIsNotOne) {
  EXPECT_EQ(OwnDescriptors::open([] {
              errno = EMFILE;
              return -1;
            }),
            -1);
  EXPECT_EQ(errno, EMFILE);
}

}  // namespace
}  // namespace distag
