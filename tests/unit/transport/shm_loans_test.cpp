// Frames that a lane lends instead of sending them.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "base/shared_memory.h"
#include "contract/transport_contract.h"
#include "support/sockets.h"
#include "transport/shm/lane_memory.h"
#include "transport/shm/shm_transport.h"

namespace distag::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TransportKind lanes() {
  TransportKind kind;
  kind.name = "shm";
  kind.make = [](FdLoop& loop) { return std::make_unique<ShmTransport>(loop, make_zmtp(loop), ""); };
  return kind;
}

// Shared memory of the sender that says when it has its place back.
struct Lent {
  std::byte* bytes;
  size_t size;
  std::shared_ptr<std::atomic<bool>> is_back = std::make_shared<std::atomic<bool>>(false);

  explicit Lent(size_t wanted, int value) : bytes(shared_memory::allocate(wanted)), size(wanted) {
    if (bytes != nullptr) std::memset(bytes, value, wanted);
  }
  Frame frame() const {
    return Frame(bytes, size, std::shared_ptr<const void>(bytes, [back = is_back, place = bytes](const void*) {
                   shared_memory::free(place);
                   *back = true;
                 }));
  }
};

// Bytes of the memory of others that this process has mapped and touched.
size_t borrowed_bytes() {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool is_borrowed = false;
  size_t kib = 0;
  while (std::getline(maps, line)) {
    if (line.find("distag-block") != std::string::npos) is_borrowed = line.find(" r--s ") != std::string::npos;
    if (is_borrowed && line.rfind("Rss:", 0) == 0) {
      kib += std::stoul(line.substr(4));
      is_borrowed = false;
    }
  }
  return kib << 10;
}

// Blocks of others that are mapped here.
size_t borrowed_blocks() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  size_t count = 0;
  while (std::getline(maps, line)) {
    if (line.find("distag-block") != std::string::npos && line.find(" r--s ") != std::string::npos) ++count;
  }
  return count;
}

// Whether it comes to hold within two minutes.
bool comes_true(const std::function<bool()>& condition) {
  const auto never = Future<Unit>::make();
  for (int i = 0; i < 120'000 && !condition(); ++i) wait(*never, kMillisecond);
  return condition();
}

class ShmLoansTest : public ::testing::Test {
 protected:
  ShmLoansTest() : server_(lanes()), client_(lanes()) {
    server_.run([this] { address_ = server_.transport().private_address(); });
    listening_.emplace(server_, address_);
    dialled_.emplace(client_, address_);
    dialled_->record().next("connected");
  }

  // As the session sends: the header stays, what can be lent is.
  bool send(Frames frames, size_t ahead = 0) {
    bool sent = false;
    client_.run([this, &frames, ahead, &sent] {
      dialled_->connection().lend(frames, ahead);
      sent = dialled_->connection().send(frames);
    });
    return sent;
  }
  Frames receive() { return listening_->record().next("message").frames; }
  static LaneReport report(Side& side) {
    LaneReport report;
    side.run([&side, &report] { report = side.transport().lane_report(); });
    return report;
  }
  LaneReport report() { return report(client_); }
  // Sends small messages until the books of the lane say so.
  bool comes_to(size_t loans_out) {
    for (int i = 0; i < 10'000; ++i) {
      if (report().loans_out == loans_out) return true;
      EXPECT_TRUE(send({Frame::of({}), Frame::copy_of("x", 1)}));
      receive();
    }
    return false;
  }

  Side server_;
  Side client_;
  std::string address_;
  std::optional<Listening> listening_;
  std::optional<Dialled> dialled_;
};

// The system has no addresses, as it may have no mappings: the frame is lost, its loan goes back, the lane stays, and
// the block is mapped as soon as it can be.
TEST_F(ShmLoansTest, AFrameWhoseBlockCannotBeMappedIsLostUntilItCan) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer maps memory of its own";
#endif
  const Lent first(kMiB, 5);
  const Lent second(kMiB, 6);
  ASSERT_EQ(shared_memory::find(first.bytes, 1)->block->id(), shared_memory::find(second.bytes, 1)->block->id());
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const std::shared_ptr<void> restored(nullptr, [before](void*) { setrlimit(RLIMIT_AS, &before); });
  rlimit none = before;
  none.rlim_cur = 1;
  setrlimit(RLIMIT_AS, &none);
  EXPECT_TRUE(send({Frame::copy_of("head", 4), first.frame()}));
  Frames frames = receive();
  setrlimit(RLIMIT_AS, &before);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(testing::text_of(frames[0]), "head");
  EXPECT_TRUE(frames[1].is_lost());
  EXPECT_EQ(frames[1].size(), kMiB);
  EXPECT_TRUE(comes_to(0));
  EXPECT_TRUE(*first.is_back);
  EXPECT_EQ(borrowed_blocks(), 0u);
  ASSERT_TRUE(send({Frame::copy_of("head", 4), second.frame()}));
  frames = receive();
  ASSERT_EQ(frames.size(), 2u);
  ASSERT_TRUE(frames[1].is_loan());
  ASSERT_FALSE(frames[1].is_lost());
  EXPECT_EQ(frames[1].data()[kMiB - 1], std::byte{6});
  EXPECT_EQ(report().open, 1u) << "the lane has stayed";
  frames.clear();
  EXPECT_TRUE(comes_to(0));
}

TEST_F(ShmLoansTest, ALargeFrameIsReadWhereItLies) {
  const Lent lent(kMiB, 5);
  ASSERT_TRUE(send({Frame::copy_of("head", 4), lent.frame()}));
  Frames frames = receive();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_FALSE(frames[0].is_loan());
  ASSERT_TRUE(frames[1].is_loan());
  ASSERT_EQ(frames[1].size(), kMiB);
  EXPECT_EQ(frames[1].data()[kMiB - 1], std::byte{5});
  lent.bytes[kMiB - 1] = std::byte{6};
  EXPECT_EQ(frames[1].data()[kMiB - 1], std::byte{6}) << "it was not copied";
  EXPECT_TRUE(send({Frame::of({}), Frame::copy_of("x", 1)}));  // at which the lender looks for what is back
  receive();
  EXPECT_EQ(report().loans_out, 1u);
  EXPECT_EQ(report().bytes_out, kMiB);
  EXPECT_FALSE(*lent.is_back);
  frames.clear();
  EXPECT_TRUE(comes_to(0));
  EXPECT_TRUE(*lent.is_back);
}

TEST_F(ShmLoansTest, WhatLiesElsewhereIsCopiedOnce) {
  const std::vector<std::byte> bytes(kMiB, std::byte{3});
  ASSERT_TRUE(send({Frame::of({}), Frame::copy_of(bytes.data(), kMiB)}));
  const Frames moved = receive();
  EXPECT_TRUE(moved[1].is_loan());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), moved[1].data()));
}

// No piece of a frame is lent unless all pieces of the frame could be lent.
TEST_F(ShmLoansTest, APieceIsLentOnlyWhereThereIsRoomForTheRest) {
  const Lent lent(kMiB, 4);
  const Frame frame = lent.frame();
  ASSERT_TRUE(send({Frame::of({}), frame}, kMiB));
  EXPECT_TRUE(receive()[1].is_loan());
  ASSERT_TRUE(send({Frame::of({}), frame}, size_t{1} << 30));
  const Frames sent = receive();
  EXPECT_FALSE(sent[1].is_loan());
  EXPECT_EQ(sent[1].data()[kMiB - 1], std::byte{4});
}

TEST_F(ShmLoansTest, SmallFramesAndTheFirstAreSent) {
  const Lent lent(kMiB, 1);
  const Lent second(kMiB, 2);
  const std::vector<std::byte> small(shared_memory::kLeastBytes - 1, std::byte{4});
  ASSERT_TRUE(send({lent.frame(), Frame::copy_of(small.data(), small.size()), second.frame()}));
  const Frames frames = receive();
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_FALSE(frames[0].is_loan());
  EXPECT_FALSE(frames[1].is_loan());
  EXPECT_TRUE(frames[2].is_loan());
}

// The receiver may compute with the loan for as long as it likes.
TEST_F(ShmLoansTest, ALoanOutlivesItsLaneWithTheValuesOfThen) {
  const Lent lent(kMiB, 5);
  ASSERT_TRUE(send({Frame::of({}), lent.frame()}));
  Frames frames = receive();
  dialled_->close();
  EXPECT_TRUE(*lent.is_back) << "its owner is free to let go";
  EXPECT_TRUE(comes_true([this] { return report(server_).open == 0; }));
  for (int i = 0; i < 64; ++i) {
    Lent other(kMiB, 9);
    ASSERT_NE(other.bytes, lent.bytes) << "the place is never used again";
    shared_memory::free(other.bytes);
  }
  EXPECT_EQ(std::count(frames[1].data(), frames[1].data() + kMiB, std::byte{5}), static_cast<ptrdiff_t>(kMiB));
}

TEST_F(ShmLoansTest, MoreThanTheNumbersOfLoansAreSentAsBytes) {
  const Lent lent(shared_memory::kLeastBytes, 5);
  const Frame frame = lent.frame();
  std::vector<Frames> held;
  size_t loans = 0;
  for (size_t i = 0; i < kMaxLoans / 16 + 2; ++i) {
    Frames frames(17, frame);
    frames[0] = Frame::of({});
    ASSERT_TRUE(send(std::move(frames)));
    held.push_back(receive());
    for (const Frame& got : held.back()) loans += got.is_loan() ? 1 : 0;
  }
  EXPECT_EQ(loans, kMaxLoans);
  EXPECT_FALSE(held.back()[16].is_loan());
  EXPECT_EQ(held.back()[16].data()[0], std::byte{5});
  held.clear();
  EXPECT_TRUE(comes_to(0));
}

TEST_F(ShmLoansTest, ABlockThatIsGoneIsForgottenOnBothSides) {
  for (int round = 0; round < 3; ++round) {
    {
      const Lent lent(20 * kMiB, round);
      ASSERT_TRUE(send({Frame::of({}), Frame(lent.bytes, kMiB, lent.frame().owner())}));
    }
    EXPECT_EQ(receive()[1].data()[0], static_cast<std::byte>(round));
    ASSERT_TRUE(comes_to(0));
    ASSERT_TRUE(comes_true([] { return !shared_memory::has_blocks(); })) << "idle blocks go back within seconds";
    ASSERT_TRUE(comes_true([] { return borrowed_blocks() == 0; })) << "who had mapped it has heard of that";
  }
  EXPECT_EQ(report().open, 1u) << "the lane has served all of it";
}

TEST_F(ShmLoansTest, MemoryOfOthersCountsHereOnlyWhileItIsRead) {
  const Lent lent(4 * kMiB, 5);
  const Frame whole = lent.frame();
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(send({Frame::of({}), Frame(lent.bytes, kMiB, whole.owner())}));
    Frames frames = receive();
    EXPECT_EQ(std::count(frames[1].data(), frames[1].data() + kMiB, std::byte{5}), static_cast<ptrdiff_t>(kMiB));
    EXPECT_GE(borrowed_bytes(), kMiB);
    EXPECT_TRUE(comes_true([] { return borrowed_bytes() == 0; }));
    EXPECT_EQ(frames[1].data()[kMiB - 1], std::byte{5}) << "it is there when it is read again";
  }
}

}  // namespace
}  // namespace distag::testing
