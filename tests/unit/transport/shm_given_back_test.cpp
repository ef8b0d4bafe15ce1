// Loans that go back to their owner, by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <string>

#include "base/random.h"
#include "base/shared_memory.h"
#include "contract/transport_contract.h"
#include "support/sockets.h"
#include "transport/shm/shm_transport.h"

namespace distag::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TransportKind lanes(bool is_on = true) {
  TransportKind kind;
  kind.name = "shm";
  kind.make = [is_on](FdLoop& loop) {
    return std::make_unique<ShmTransport>(loop, make_zmtp(loop), is_on ? "" : "off", nullptr, SystemRandom().next());
  };
  return kind;
}

// A worker that others dial.
class Worker {
 public:
  explicit Worker(const TransportKind& kind = lanes()) : side_(kind) {
    side_.run([this] { address_ = side_.transport().private_address(); });
    listening_.emplace(side_, address_);
  }
  Side& side() { return side_; }
  const std::string& address() const { return address_; }
  Frames receive() { return listening_->record().next("message").frames; }
  size_t loans_out() {
    size_t count = 0;
    side_.run([this, &count] { count = side_.transport().lane_report().loans_out; });
    return count;
  }

 private:
  Side side_;
  std::string address_;
  std::optional<Listening> listening_;
};

// From one worker to another.
class Way {
 public:
  Way(Worker& from, Worker& to) : from_(from), to_(to) { dial(); }
  ~Way() { close(); }
  // As the session sends: the header stays, and what can be lent is.
  void send(Frame frame) {
    Frames frames = {Frame::of({}), std::move(frame)};
    bool is_sent = false;
    from_.side().run([this, &frames, &is_sent] {
      connection_->lend(frames, 0);
      is_sent = connection_->send(frames);
    });
    ASSERT_TRUE(is_sent);
  }
  Frame pass(Frame frame) {
    send(std::move(frame));
    Frames frames = to_.receive();
    return frames.size() == 2 ? frames[1] : Frame();
  }
  // Small messages, at which the lender looks for what is back, until `loans_out` are out.
  bool comes_to(size_t loans_out) {
    for (int i = 0; i < 120'000 && from_.loans_out() != loans_out; ++i) pass(Frame::copy_of("x", 1));
    return from_.loans_out() == loans_out;
  }
  void dial() {
    from_.side().run([this] { connection_ = from_.side().transport().dial(to_.address(), recording(record_)); });
    record_.next("connected");
  }
  void close() {
    from_.side().run([this] { close_on_loop(); });
  }
  void close_on_loop() { connection_.reset(); }
  bool is_dropped() { return record_.next("dropped").what == "dropped"; }

 private:
  Worker& from_;
  Worker& to_;
  Record record_;
  std::unique_ptr<Connection> connection_;
};

// Memory of the owner, as a frame that says when the last of its holders has let go.
struct Lent {
  explicit Lent(size_t wanted, int value) : bytes(shared_memory::allocate(wanted)), size(wanted) {
    std::memset(bytes, value, wanted);
    whole = Frame(bytes, size, std::shared_ptr<const void>(bytes, [back = is_back, place = bytes](const void*) {
                    shared_memory::free(place);
                    *back = true;
                  }));
  }
  Frame part(size_t offset, size_t count) const { return Frame(bytes + offset, count, whole.owner()); }

  std::shared_ptr<std::atomic<bool>> is_back = std::make_shared<std::atomic<bool>>(false);
  std::byte* const bytes;
  const size_t size;
  Frame whole;
};

bool holds(const Frame& frame, int value) {
  return std::count(frame.data(), frame.data() + frame.size(), static_cast<std::byte>(value)) ==
         static_cast<ptrdiff_t>(frame.size());
}

class ShmGivenBackTest : public ::testing::Test {
 protected:
  Worker owner_;
  Worker borrower_;
  Way there_{owner_, borrower_};
  Way back_{borrower_, owner_};
};

TEST_F(ShmGivenBackTest, ItIsTheMemoryOfItsOwner) {
  const Lent lent(kMiB, 5);
  const Frame borrowed = there_.pass(lent.whole);
  ASSERT_NE(borrowed.data(), lent.bytes);
  const Frame own = back_.pass(borrowed);
  EXPECT_EQ(own.data(), lent.bytes);
  EXPECT_EQ(own.size(), kMiB);
  EXPECT_TRUE(own.is_loan()) << "its bytes have not travelled";
  const Frame again = there_.pass(own);
  EXPECT_EQ(back_.pass(again).data(), lent.bytes) << "as often as it is passed on";
}

// The owner's hold is one of its own: the borrower is free to let go, and is told so at once.
TEST_F(ShmGivenBackTest, TheOwnerHoldsItFromThenOn) {
  Lent lent(kMiB, 5);
  Frame borrowed = there_.pass(lent.whole);
  Frame own = back_.pass(borrowed);
  EXPECT_TRUE(back_.comes_to(0)) << "the name has arrived";
  borrowed = Frame();
  EXPECT_TRUE(there_.comes_to(0));
  lent.whole = Frame();
  EXPECT_FALSE(*lent.is_back) << "the frame that came is a holder";
  EXPECT_TRUE(holds(own, 5));
  own = Frame();
  EXPECT_TRUE(*lent.is_back);
}

// The side that gives it back need not wait for the other one: the lane does.
TEST_F(ShmGivenBackTest, ALoanIsOutUntilItsNameWasRead) {
  Lent lent(kMiB, 5);
  Frame borrowed = there_.pass(lent.whole);
  lent.whole = Frame();
  back_.send(std::move(borrowed));
  borrowed = Frame();
  const Frames frames = owner_.receive();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[1].data(), lent.bytes);
  EXPECT_TRUE(holds(frames[1], 5));
}

TEST_F(ShmGivenBackTest, APartIsAPart) {
  const Lent lent(kMiB, 5);
  const Frame borrowed = there_.pass(lent.whole);
  const size_t size = shared_memory::kLeastBytes + 1;
  const Frame part = back_.pass(Frame(borrowed.data() + 4099, size, borrowed.owner()));
  EXPECT_EQ(part.data(), lent.bytes + 4099);
  EXPECT_EQ(part.size(), size);
}

// As pieces of a large frame are, in whichever order they were lent.
TEST_F(ShmGivenBackTest, LoansThatLieBehindEachOtherGoBackInOne) {
  Lent lent(kMiB, 5);
  const size_t piece = kMiB / 4;
  std::vector<Frame> borrowed(4);
  for (const size_t i : {2u, 0u, 3u, 1u}) borrowed[i] = there_.pass(lent.part(i * piece, piece));
  const auto all = std::make_shared<std::vector<Frame>>(std::exchange(borrowed, {}));
  Frame own = back_.pass(Frame((*all)[0].data() + 100, kMiB - 200, all));
  EXPECT_EQ(own.data(), lent.bytes + 100);
  lent.whole = Frame();
  (*all).clear();
  EXPECT_TRUE(back_.comes_to(0));
  EXPECT_TRUE(there_.comes_to(0));
  EXPECT_FALSE(*lent.is_back);
  own = Frame();
  EXPECT_TRUE(*lent.is_back);
}

TEST_F(ShmGivenBackTest, AnotherWorkerGetsACopy) {
  const Lent lent(kMiB, 5);
  const Frame borrowed = there_.pass(lent.whole);
  Worker other;  // of the process of the owner
  Way on(borrower_, other);
  const Frame copy = on.pass(borrowed);
  ASSERT_EQ(copy.size(), kMiB);
  EXPECT_NE(copy.data(), lent.bytes);
  lent.bytes[7] = std::byte{6};
  EXPECT_TRUE(holds(copy, 5));
  lent.bytes[7] = std::byte{5};
  EXPECT_EQ(back_.pass(borrowed).data(), lent.bytes);
}

TEST_F(ShmGivenBackTest, WithoutALaneBackItIsCopied) {
  const Lent lent(kMiB, 5);
  Worker sender(lanes(false));  // takes no lanes, and dials none
  Way to(owner_, sender);
  const Frame sent = to.pass(lent.whole);
  EXPECT_TRUE(holds(sent, 5));
  Way from(sender, owner_);
  EXPECT_NE(from.pass(sent).data(), lent.bytes);
}

TEST_F(ShmGivenBackTest, AfterTheLaneThatLentItIsCopied) {
  Lent lent(kMiB, 5);
  const Frame borrowed = there_.pass(lent.whole);
  there_.close();
  lent.whole = Frame();
  EXPECT_TRUE(*lent.is_back);
  // Until the borrower has heard of the end.
  const auto is_open = [this] {
    uint64_t open = 0;
    borrower_.side().run([this, &open] { open = borrower_.side().transport().lane_report().open; });
    return open != 1;
  };
  const auto never = Future<Unit>::make();
  for (int i = 0; i < 120'000 && is_open(); ++i) wait(*never, kMillisecond);
  const Frame copy = back_.pass(borrowed);
  EXPECT_NE(copy.data(), lent.bytes);
  EXPECT_TRUE(holds(copy, 5));
  there_.dial();
  EXPECT_NE(back_.pass(there_.pass(copy)).data(), lent.bytes);
}

// The name is in the ring while the owner ends the lane that lent it: the connection drops, and what goes again on the
// next one is a copy.
TEST_F(ShmGivenBackTest, ANameThatComesAfterTheEndDropsTheConnection) {
  const Lent lent(kMiB, 5);
  const Frame borrowed = there_.pass(lent.whole);
  std::promise<void> is_held;
  std::promise<void> is_written;
  auto is_over = Future<Unit>::make();
  owner_.side().loop().post_or_drop([this, &is_held, &is_written, is_over] {
    is_held.set_value();
    is_written.get_future().wait();
    there_.close_on_loop();
    is_over->complete(Unit{});
  });
  is_held.get_future().wait();
  back_.send(borrowed);
  is_written.set_value();
  ASSERT_TRUE(wait(*is_over, kPatience));
  EXPECT_TRUE(back_.is_dropped());
  back_.dial();
  const Frame copy = back_.pass(borrowed);
  EXPECT_NE(copy.data(), lent.bytes);
  EXPECT_TRUE(holds(copy, 5));
}

}  // namespace
}  // namespace distag::testing
