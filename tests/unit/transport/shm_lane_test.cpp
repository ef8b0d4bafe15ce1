#include "transport/shm/lane.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/fd_loop.h"

namespace distag {
namespace {

// Both ends of a lane within one task of the loop, which so takes no turns itself.
void pass_a_long_message(FdLoop& loop) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const auto context = std::make_shared<LaneContext>(loop);
  LaneMemory memory = LaneMemory::make(kLaneSizes);
  LaneMemory same = LaneMemory::adopt(dup(memory.fd()), kLaneSizes);
  std::vector<Frames> came;
  LaneEvents events;
  events.on_message = [&came](Frames frames) { came.push_back(std::move(frames)); };
  const auto dialler = std::make_shared<Lane>(context, std::move(memory), LaneSocket(ends[0]), true, LaneEvents{});
  const auto acceptor = std::make_shared<Lane>(context, std::move(same), LaneSocket(ends[1]), false, std::move(events));
  dialler->open();
  acceptor->open();

  EXPECT_FALSE(dialler->is_under_way());
  EXPECT_TRUE(dialler->send({Frame::of(std::vector<std::byte>(3 * kLaneSizes.there))}));
  EXPECT_TRUE(dialler->is_under_way()) << "it has no room for all";
  EXPECT_FALSE(acceptor->is_under_way()) << "nothing was read yet";
  acceptor->turn();
  for (int i = 0; i < 10 && came.empty(); ++i) {
    EXPECT_TRUE(acceptor->is_under_way());
    dialler->turn();
    acceptor->turn();
  }
  dialler->close();
  acceptor->close();
  ASSERT_EQ(came.size(), 1u);
  EXPECT_EQ(came[0][0].size(), 3 * kLaneSizes.there);
  EXPECT_FALSE(dialler->is_under_way());
  EXPECT_FALSE(acceptor->is_under_way());
}

// The loop looks on for the rest of a message, however crowded its core is.
TEST(LaneTest, AMessageIsUnderWayOnBothSidesUntilAllOfItHasCome) {
  FdLoop loop("test", {});
  loop.start();
  const auto done = Future<Unit>::make();
  loop.post_or_drop([&loop, done] {
    pass_a_long_message(loop);
    done->complete(Unit{});
  });
  ASSERT_TRUE(wait(*done, 120 * kSecond));
}

}  // namespace
}  // namespace distag
