#include "transport/shm/lane.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/fd_loop.h"
#include "contract/transport_contract.h"
#include "support/sockets.h"
#include "transport/shm/lane_socket.h"
#include "transport/shm/shm_transport.h"

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

// The lane is refused, and the way below finds no descriptor: that says nothing of the other side.
TEST(LaneTest, WithoutDescriptorsForTheWayBelowThatIsToldAsALack) {
  testing::TransportKind kind;
  kind.name = "shm";
  kind.make = [](FdLoop& loop) { return std::make_unique<ShmTransport>(loop, testing::make_zmtp(loop), ""); };
  testing::Side client(std::move(kind));
  std::string address;
  client.run([&client, &address] { address = client.transport().private_address(); });
  const SocketAddress lane = lane_address(address).value();
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&lane.address), lane.length), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  testing::Dialled dialled(client, address);
  const int accepted = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ASSERT_GE(accepted, 0);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(accepted);
  setrlimit(RLIMIT_NOFILE, &few);
  close(accepted);
  const testing::Record::Event lack = dialled.record().next("lack");
  setrlimit(RLIMIT_NOFILE, &before);
  close(listener);
  unlink(lane.path());
  ASSERT_EQ(lack.what, "lack");
  EXPECT_NE(testing::text_of(lack.frames.at(0)).find("ulimit -n"), std::string::npos);
}

}  // namespace
}  // namespace distag
