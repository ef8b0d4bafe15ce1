// A hostile process of the same user at the other end of a lane: the victim drops the connection, and goes on.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <random>
#include <thread>

#include "base/shared_memory.h"
#include "contract/transport_contract.h"
#include "support/sockets.h"
#include "transport/shm/lane_memory.h"
#include "transport/shm/lane_socket.h"
#include "transport/shm/ring_message.h"
#include "transport/shm/shm_transport.h"

namespace distag::testing {
namespace {

constexpr int kPatienceMs = 120'000;
constexpr size_t kTotal = kLaneControlBytes + kLaneSizes.there + kLaneSizes.back;
constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

TransportKind kind_of(const std::string& why_off) {
  TransportKind kind;
  kind.name = "shm";
  kind.make = [why_off](FdLoop& loop) { return std::make_unique<ShmTransport>(loop, make_zmtp(loop), why_off); };
  return kind;
}

int make_memory(size_t size, unsigned seals) {
  const int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (ftruncate(fd, static_cast<off_t>(size)) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0) std::abort();
  return fd;
}

// A process that speaks to a lane by hand.
class Stranger {
 public:
  explicit Stranger(const std::string& endpoint) : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const SocketAddress address = lane_address(endpoint).value();
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0) std::abort();
  }
  ~Stranger() {
    if (memory_ != nullptr) munmap(memory_, kTotal);
    if (fd_ >= 0) close(fd_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  bool send_bytes(const void* bytes, size_t size, const std::vector<int>& fds = {}) {
    iovec part = {const_cast<void*>(bytes), size};
    alignas(cmsghdr) char room[256] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = room;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    return sendmsg(fd_, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
  }
  bool offer(int fd, LaneOffer offer = {kLaneMagic, kLaneVersion, kLaneSizes, 0}) {
    const bool is_sent = send_bytes(&offer, sizeof offer, {fd});
    close(fd);
    return is_sent;
  }
  // An offer as it should be, up to its answer; of a worker that says it is this one.
  bool open(uint64_t worker = 0) {
    const int fd = make_memory(kTotal, kSeals);
    memory_ = static_cast<std::byte*>(mmap(nullptr, kTotal, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    LaneAnswer answer;
    return offer(fd, {kLaneMagic, kLaneVersion, kLaneSizes, 0, worker}) && wait_readable() &&
           recv(fd_, &answer, sizeof answer, 0) == sizeof answer && answer.is_taken == 1;
  }
  bool wait_readable() const {
    pollfd wanted = {fd_, POLLIN, 0};
    return poll(&wanted, 1, kPatienceMs) == 1;
  }
  // The other side has hung up, after any wakes.
  bool is_hung_up_on() const {
    char room[64];
    while (wait_readable()) {
      const ssize_t got = recv(fd_, room, sizeof room, 0);
      if (got <= 0) return true;
    }
    return false;
  }
  std::atomic<uint64_t>& word(size_t offset) { return *reinterpret_cast<std::atomic<uint64_t>*>(memory_ + offset); }
  std::atomic<uint64_t>& written() { return word(0); }
  std::atomic<uint64_t>& back_read() { return word(192); }
  std::byte* bytes() { return memory_ + kLaneControlBytes; }
  std::byte* memory() { return memory_; }
  bool wake() { return send_bytes("w", 1); }
  void hang_up() {
    close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
  std::byte* memory_ = nullptr;
};

size_t descriptor_count() {
  size_t count = 0;
  DIR* const directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

Nanos process_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<Nanos>(time.tv_sec) * kSecond + time.tv_nsec;
}

void pass_time(Nanos time) {
  auto never = Future<Unit>::make();
  EXPECT_FALSE(wait(*never, time));
}

class ShmHostileTest : public ::testing::Test {
 protected:
  ShmHostileTest() {
    victim_.run([this] { address_ = victim_.transport().private_address(); });
    listening_ = std::make_unique<Listening>(victim_, address_);
  }

  LaneReport report(Side& side) {
    LaneReport report;
    side.run([&side, &report] { report = side.transport().lane_report(); });
    return report;
  }
  // The way that a dial goes now, with a message.
  std::string dial_way() {
    Dialled dialled(client_, address_);
    EXPECT_EQ(dialled.record().next("connected").what, "connected");
    EXPECT_TRUE(dialled.send({text_frame("hello")}));
    std::string text;
    while (text != "hello") {  // after any that strangers have made up
      const Record::Event event = listening_->record().next("message");
      if (event.what.empty()) break;
      text = text_of(event.frames.at(0));
    }
    EXPECT_EQ(text, "hello");
    return report(client_).ways.at(address_);
  }
  void expect_all_closed(size_t descriptors) {
    for (int i = 0; i < 120'000 && descriptor_count() > descriptors; ++i) pass_time(kMillisecond);
    EXPECT_LE(descriptor_count(), descriptors);
  }

  Side victim_{kind_of("")};
  Side client_{kind_of("")};
  std::string address_;
  std::unique_ptr<Listening> listening_;
};

TEST_F(ShmHostileTest, ADialGoesByALane) {
  EXPECT_EQ(dial_way(), "lane");
  Side off(kind_of("DISTAG_LANE=0"));
  Dialled dialled(off, address_);
  EXPECT_EQ(dialled.record().next("connected").what, "connected");
  EXPECT_EQ(report(off).ways.at(address_), "DISTAG_LANE=0");
  EXPECT_FALSE(report(off).is_on);
}

TEST_F(ShmHostileTest, WhereNoLanesAreTakenADialGoesBelow) {
  Side off(kind_of("off"));
  std::string address;
  off.run([&off, &address] { address = off.transport().private_address(); });
  Listening listening(off, address);
  Dialled dialled(client_, address);
  EXPECT_EQ(dialled.record().next("connected").what, "connected");
  ASSERT_TRUE(dialled.send({text_frame("hello")}));
  EXPECT_EQ(text_of(listening.record().next("message").frames.at(0)), "hello");
  EXPECT_NE(report(client_).ways.at(address).find("no worker takes lanes"), std::string::npos);
}

TEST_F(ShmHostileTest, OtherDescriptorsAreRefusedAndClosed) {
  const size_t before = descriptor_count();
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  close(pipes[1]);
  char path[] = "/tmp/distag-hostile-XXXXXX";
  const int file = mkostemp(path, O_CLOEXEC);
  ASSERT_EQ(ftruncate(file, kTotal), 0);
  unlink(path);
  const std::vector<int> fds = {pipes[0],
                                file,
                                eventfd(0, EFD_CLOEXEC),
                                epoll_create1(EPOLL_CLOEXEC),
                                open("/dev/zero", O_RDWR | O_CLOEXEC),
                                open("/dev/null", O_RDWR | O_CLOEXEC),
                                open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
                                make_memory(kTotal, F_SEAL_SEAL),
                                make_memory(kTotal, F_SEAL_SHRINK | F_SEAL_GROW),
                                make_memory(kTotal, F_SEAL_GROW | F_SEAL_SEAL),
                                make_memory(kTotal, F_SEAL_SHRINK | F_SEAL_SEAL),
                                make_memory(kTotal, kSeals | F_SEAL_WRITE),
                                make_memory(kTotal, kSeals | F_SEAL_FUTURE_WRITE),
                                make_memory(kTotal - 4096, kSeals),
                                make_memory(kTotal + 4096, kSeals),
                                make_memory(0, kSeals)};
  for (size_t i = 0; i < fds.size(); ++i) {
    ASSERT_GE(fds[i], 0) << i;
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.offer(fds[i])) << i;
    EXPECT_TRUE(stranger.is_hung_up_on()) << i;
  }
  expect_all_closed(before);
  EXPECT_EQ(report(victim_).refused, fds.size());
  EXPECT_EQ(dial_way(), "lane");
}

TEST_F(ShmHostileTest, OtherOffersAreRefusedAndTheirDescriptorsClosed) {
  const size_t before = descriptor_count();
  const LaneOffer good = {kLaneMagic, kLaneVersion, kLaneSizes, 0};
  std::vector<LaneOffer> bad(8, good);
  bad[0].magic = 0;
  bad[1].version = 99;
  bad[2].sizes.there = 0;
  bad[3].sizes.there = ~0u;
  bad[4].sizes.back = 3;
  bad[5].sizes = {kLaneSizes.back, kLaneSizes.there * 2};
  bad[6].sizes.back = 1u << 31;
  bad[7].sizes = {1u << 31, 1u << 31};
  for (const LaneOffer& offer : bad) {
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.offer(make_memory(kTotal, kSeals), offer));
    EXPECT_TRUE(stranger.is_hung_up_on());
  }
  for (const size_t count : {0u, 2u, 3u, 40u}) {
    Stranger stranger(address_);
    std::vector<int> fds;
    for (size_t i = 0; i < count; ++i) fds.push_back(make_memory(kTotal, kSeals));
    ASSERT_TRUE(stranger.send_bytes(&good, sizeof good, fds));
    for (const int fd : fds) close(fd);
    EXPECT_TRUE(stranger.is_hung_up_on()) << count;
  }
  for (const size_t size : {size_t{1}, sizeof good - 1, sizeof good + 1, size_t{100'000}}) {
    Stranger stranger(address_);
    const std::vector<char> bytes(size, 'x');
    const int fd = make_memory(kTotal, kSeals);
    ASSERT_TRUE(stranger.send_bytes(bytes.data(), bytes.size(), {fd}));
    close(fd);
    EXPECT_TRUE(stranger.is_hung_up_on()) << size;
  }
  expect_all_closed(before);
  EXPECT_EQ(dial_way(), "lane");
}

TEST_F(ShmHostileTest, CountsThatJumpEndTheLane) {
  const size_t before = descriptor_count();
  for (const uint64_t bad : {uint64_t{kLaneSizes.there} + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.open());
    stranger.written() = bad;
    ASSERT_TRUE(stranger.wake());
    EXPECT_TRUE(stranger.is_hung_up_on()) << bad;
  }
  expect_all_closed(before);
  EXPECT_EQ(report(victim_).open, 0u);
}

TEST_F(ShmHostileTest, AReadCountThatJumpsEndsTheLaneAtTheAnswer) {
  Stranger stranger(address_);
  ASSERT_TRUE(stranger.open());
  const uint32_t head[] = {1, 2};
  std::memcpy(stranger.bytes(), head, sizeof head);
  std::memcpy(stranger.bytes() + sizeof head, "hi", 2);
  stranger.written() = sizeof head + 2;
  ASSERT_TRUE(stranger.wake());
  const Record::Event event = listening_->record().next("message");
  ASSERT_EQ(text_of(event.frames.at(0)), "hi");
  stranger.back_read() = 12345;
  for (int i = 0; i < 100; ++i) listening_->reply(event.from, {make_frame(1000, 1)});
  EXPECT_TRUE(stranger.is_hung_up_on());
  EXPECT_FALSE(listening_->reply(event.from, {text_frame("late")}));
}

TEST_F(ShmHostileTest, SizesThatLieEndTheLane) {
  for (const std::vector<uint32_t>& head : std::vector<std::vector<uint32_t>>{{0}, {1u << 20}, {1, 1u << 30}}) {
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.open());
    std::memcpy(stranger.bytes(), head.data(), head.size() * sizeof(uint32_t));
    stranger.written() = head.size() * sizeof(uint32_t);
    ASSERT_TRUE(stranger.wake());
    EXPECT_TRUE(stranger.is_hung_up_on()) << head[0];
  }
}

TEST_F(ShmHostileTest, WakesForNothingEndTheLane) {
  Stranger stranger(address_);
  ASSERT_TRUE(stranger.open());
  for (int i = 0; i < 10'000 && stranger.wake(); ++i) {
  }
  EXPECT_TRUE(stranger.is_hung_up_on());
}

// Half of a number is there, and no more comes: no thread keeps looking for it.
TEST_F(ShmHostileTest, APartOfAMessageKeepsNobodyBusy) {
  Stranger stranger(address_);
  ASSERT_TRUE(stranger.open());
  stranger.written() = 2;
  ASSERT_TRUE(stranger.wake());
  pass_time(20 * kMillisecond);
  const Nanos before = process_time();
  pass_time(kSecond);
  EXPECT_LT(process_time() - before, kSecond / 2) << "who looks for it all the time takes a second";
  EXPECT_EQ(report(victim_).open, 1u);
}

TEST_F(ShmHostileTest, AHangUpAtAnyMomentLeavesNothing) {
  const size_t before = descriptor_count();
  for (int round = 0; round < 50; ++round) {
    { Stranger stranger(address_); }
    {
      Stranger stranger(address_);
      ASSERT_TRUE(stranger.offer(make_memory(kTotal, kSeals)));
    }
    {
      Stranger stranger(address_);
      ASSERT_TRUE(stranger.open());
    }
    {
      Stranger stranger(address_);
      ASSERT_TRUE(stranger.open());
      const uint32_t head[] = {1, 100'000};
      std::memcpy(stranger.bytes(), head, sizeof head);
      stranger.written() = 50'000;  // half of a message
      ASSERT_TRUE(stranger.wake());
    }
  }
  expect_all_closed(before);
  for (int i = 0; i < 120'000 && report(victim_).open > 0; ++i) pass_time(kMillisecond);
  EXPECT_EQ(report(victim_).open, 0u);
  EXPECT_EQ(dial_way(), "lane");
}

TEST_F(ShmHostileTest, MessagesFromBeforeTheHangUpAreHeard) {
  Stranger stranger(address_);
  ASSERT_TRUE(stranger.open());
  const uint32_t head[] = {1, 2};
  for (size_t i = 0; i < 200; ++i) {
    std::byte* const place = stranger.bytes() + i * (sizeof head + 2);
    std::memcpy(place, head, sizeof head);
    std::memcpy(place + sizeof head, "hi", 2);
  }
  stranger.written() = 200 * (sizeof head + 2) + 3;  // and a part of one more
  stranger.hang_up();
  for (int i = 0; i < 200; ++i) EXPECT_EQ(text_of(listening_->record().next("message").frames.at(0)), "hi");
  for (int i = 0; i < 120'000 && report(victim_).open > 0; ++i) pass_time(kMillisecond);
  EXPECT_EQ(report(victim_).open, 0u);
}

TEST_F(ShmHostileTest, AFloodOfSocketsLeavesTheWayBelow) {
  {
    // The transport below opens for its first dial what it keeps.
    std::string nobody;
    client_.run([this, &nobody] { nobody = client_.transport().private_address(); });
    Dialled dialled(client_, nobody);
    EXPECT_EQ(dialled.record().next("refused").what, "refused");
  }
  const size_t before = descriptor_count();
  {
    std::vector<std::unique_ptr<Stranger>> flood;
    for (int i = 0; i < 300; ++i) {
      flood.push_back(std::make_unique<Stranger>(address_));
      if (i % 40 == 39) victim_.run([] {});
    }
    while (report(victim_).refused < 300 - 64) pass_time(kMillisecond);
    EXPECT_NE(dial_way(), "lane");
  }
  expect_all_closed(before);
  EXPECT_EQ(dial_way(), "lane");
}

// All bytes of the memory change all the time, also while they are read.
TEST_F(ShmHostileTest, MemoryThatNeverRestsHarmsNobody) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 150; ++round) {
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.open());
    std::atomic<bool> is_over{false};
    std::thread scribbler([&stranger, &is_over, seed = random()] {
      std::mt19937_64 noise(seed);
      uint64_t written = 0;
      while (!is_over) {
        const uint32_t head[] = {static_cast<uint32_t>(1 + noise() % 3), static_cast<uint32_t>(noise() % 3000),
                                 static_cast<uint32_t>(noise() % 3000), static_cast<uint32_t>(noise() % 3000)};
        for (size_t i = 0; i < sizeof head; ++i) {
          const size_t place = (written + i) % kLaneSizes.there;
          reinterpret_cast<std::atomic<char>*>(stranger.bytes())[place] = reinterpret_cast<const char*>(head)[i];
        }
        written += noise() % 4000;
        stranger.written() = noise() % 500 == 0 ? noise() : written;
        for (int i = 0; i < 20; ++i) {
          reinterpret_cast<std::atomic<char>*>(stranger.bytes())[noise() % kLaneSizes.there] =
              static_cast<char>(noise() % 3);
        }
        stranger.word(256) = noise() % 4;
        stranger.word(320) = noise() % 4;
      }
    });
    for (int i = 0; i < 20; ++i) victim_.run([] {});
    is_over = true;
    scribbler.join();
  }
  EXPECT_EQ(dial_way(), "lane");
}

// ---- a stranger lends ----

constexpr uint64_t kBlockBytes = 64 << 10;
constexpr unsigned kBlockSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

// A message of a header of 4 bytes and a loan.
void write_loan(Stranger& stranger, Loan loan, uint32_t size, uint32_t damage = 0) {
  loan.check = loan.checksum(size) + damage;
  const uint32_t head[] = {2, 4, size | 1u << 31, 7};
  std::memcpy(stranger.bytes(), head, sizeof head);
  std::memcpy(stranger.bytes() + sizeof head, &loan, sizeof loan);
  stranger.written() = sizeof head + sizeof loan;
  stranger.wake();
}

bool show(Stranger& stranger, const ShownBlock& block, const std::vector<int>& fds) {
  const bool is_sent = stranger.send_bytes(&block, sizeof block, fds);
  for (const int fd : fds) close(fd);
  return is_sent;
}

TEST_F(ShmHostileTest, ALoanIsReadWhereTheStrangerHasShownIt) {
  Stranger stranger(address_);
  ASSERT_TRUE(stranger.open());
  const int fd = make_memory(kBlockBytes, 0);
  ASSERT_EQ(pwrite(fd, "lent", 4, 4096), 4);
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, kBlockSeals), 0);
  ASSERT_TRUE(show(stranger, {9, kBlockBytes}, {fd}));
  write_loan(stranger, {9, 4096, 3, 0}, 4);
  Frames frames = listening_->record().next("message").frames;
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_TRUE(frames[1].is_loan());
  EXPECT_EQ(text_of(frames[1]), "lent");
  const auto& returned = reinterpret_cast<std::atomic<uint8_t>*>(stranger.memory() + 4096)[3];
  EXPECT_EQ(returned, 0);
  frames.clear();
  EXPECT_EQ(returned, 1);
}

// Each ends the lane, and nothing but the lane.
TEST_F(ShmHostileTest, LoansThatCannotBeEndTheLane) {
  struct Case {
    const char* what;
    Loan loan;
    uint32_t size;
  };
  const Case cases[] = {
      {"a block that was not shown", {8, 0, 0, 0}, 4},    {"behind the block", {9, kBlockBytes, 0, 0}, 1},
      {"beyond its end", {9, kBlockBytes - 3, 0, 0}, 4},  {"an offset that wraps", {9, UINT64_MAX - 1, 0, 0}, 4},
      {"a number that is none", {9, 0, kMaxLoans, 0}, 4}, {"no bytes", {9, 0, 0, 0}, 0},
      {"too many bytes", {9, 0, 0, 0}, 2u << 20}};
  const size_t before = descriptor_count();
  for (const Case& one : cases) {
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.open());
    ASSERT_TRUE(show(stranger, {9, kBlockBytes}, {make_memory(kBlockBytes, kBlockSeals)}));
    write_loan(stranger, one.loan, one.size);
    EXPECT_TRUE(stranger.is_hung_up_on()) << one.what;
  }
  {
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.open());
    ASSERT_TRUE(show(stranger, {9, kBlockBytes}, {make_memory(kBlockBytes, kBlockSeals)}));
    write_loan(stranger, {9, 0, 0, 0}, 4, 1);
    EXPECT_TRUE(stranger.is_hung_up_on()) << "a place that was changed on its way";
  }
  {
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.open());
    const uint32_t head[] = {4, 4, 1u << 20 | 1u << 31, 1u << 20 | 1u << 31, 1u << 20 | 1u << 31};
    std::memcpy(stranger.bytes(), head, sizeof head);
    stranger.written() = sizeof head;
    stranger.wake();
    EXPECT_TRUE(stranger.is_hung_up_on()) << "more than a message may be, though none of it travels";
  }
  {
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.open());
    ASSERT_TRUE(show(stranger, {9, kBlockBytes}, {make_memory(kBlockBytes, kBlockSeals)}));
    const uint32_t head[] = {1, 4 | 1u << 31};  // the header itself, which is looked at where it lies
    std::memcpy(stranger.bytes(), head, sizeof head);
    stranger.written() = sizeof head;
    stranger.wake();
    EXPECT_TRUE(stranger.is_hung_up_on());
  }
  EXPECT_EQ(dial_way(), "lane");
  expect_all_closed(before);
}

TEST_F(ShmHostileTest, BlocksThatCannotBeEndTheLane) {
  const size_t before = descriptor_count();
  const auto ends = [this](const char* what, std::vector<std::pair<ShownBlock, std::vector<int>>> packets) {
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.open());
    for (const auto& [block, fds] : packets) show(stranger, block, fds);
    EXPECT_TRUE(stranger.is_hung_up_on()) << what;
  };
  const auto block = [] { return make_memory(kBlockBytes, kBlockSeals); };
  ends("shown twice", {{{9, kBlockBytes}, {block()}}, {{9, kBlockBytes}, {block()}}});
  ends("gone before it was there", {{{9, 0}, {}}});
  ends("gone with a descriptor", {{{9, kBlockBytes}, {block()}}, {{9, 0}, {block()}}});
  ends("shown without one", {{{9, kBlockBytes}, {}}});
  ends("shown with two", {{{9, kBlockBytes}, {block(), block()}}});
  ends("without an id", {{{0, kBlockBytes}, {block()}}});
  ends("smaller than it says", {{{9, 2 * kBlockBytes}, {block()}}});
  ends("one that may shrink", {{{9, kBlockBytes}, {make_memory(kBlockBytes, F_SEAL_GROW)}}});
  ends("one that others may write to",
       {{{9, kBlockBytes}, {make_memory(kBlockBytes, kBlockSeals & ~unsigned{F_SEAL_FUTURE_WRITE})}}});
  ends("no memory", {{{9, kBlockBytes}, {eventfd(0, EFD_CLOEXEC)}}});
  {
    Stranger stranger(address_);
    ASSERT_TRUE(stranger.open());
    const int one = block();
    for (uint64_t id = 1; id <= kMaxShownBlocks + 1; ++id) {
      const ShownBlock shown{id, kBlockBytes};
      stranger.send_bytes(&shown, sizeof shown, {one});
    }
    close(one);
    EXPECT_TRUE(stranger.is_hung_up_on()) << "more than are taken";
  }
  EXPECT_EQ(dial_way(), "lane");
  expect_all_closed(before);
}

// Sparse blocks cost the victim addresses: one bound holds for all lanes, and blocks that are gone do not count.
TEST_F(ShmHostileTest, BlocksOfAllLanesTogetherHaveOneBound) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer keeps most addresses for itself: 8 TiB cannot be mapped beside it";
#endif
  constexpr uint64_t kTiB = uint64_t{1} << 40;
  const size_t before = descriptor_count();
  for (int round = 0; round < 2; ++round) {
    Stranger first(address_);
    Stranger second(address_);
    ASSERT_TRUE(first.open());
    ASSERT_TRUE(second.open());
    for (uint64_t id = 1; id <= 8; ++id) {
      Stranger& stranger = id % 2 == 0 ? first : second;
      ASSERT_TRUE(show(stranger, {id, kTiB}, {make_memory(kTiB, kBlockSeals)})) << id;
    }
    write_loan(second, {7, 0, 0, 0}, 4);  // all that it has shown is there then
    EXPECT_EQ(listening_->record().next("message").frames.size(), 2u);
    ASSERT_TRUE(show(first, {8, 0}, {}));
    ASSERT_TRUE(show(first, {9, kTiB - kBlockBytes}, {make_memory(kTiB - kBlockBytes, kBlockSeals)}));
    ASSERT_TRUE(show(first, {10, kBlockBytes}, {make_memory(kBlockBytes, kBlockSeals)}));
    write_loan(first, {10, 0, 0, 0}, 4);
    EXPECT_EQ(listening_->record().next("message").frames.size(), 2u);
    show(first, {11, kBlockBytes}, {make_memory(kBlockBytes, kBlockSeals)});
    EXPECT_TRUE(first.is_hung_up_on()) << "4 TiB of each are the most";
  }
  EXPECT_EQ(dial_way(), "lane");
  expect_all_closed(before);
}

// ---- a stranger takes lanes ----

class FalseAcceptor {
 public:
  explicit FalseAcceptor(const std::string& endpoint) : address_(lane_address(endpoint).value()) {
    fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&address_.address), address_.length) != 0) std::abort();
    if (listen(fd_, 16) != 0) std::abort();
  }
  ~FalseAcceptor() {
    close(fd_);
    unlink(address_.path());
  }
  // A dialler with its offer; -1: none within `patience_ms`.
  int accept_offer(int patience_ms) {
    const int accepted = accept(patience_ms);
    LaneOffer offer;
    if (accepted >= 0 && recv(accepted, &offer, sizeof offer, 0) != sizeof offer) std::abort();
    return accepted;
  }
  // The same, with the descriptor of the offer.
  LaneSocket accept_memory(int& memory_fd) {
    LaneSocket socket(accept(kPatienceMs));
    LaneOffer offer;
    pollfd wanted = {socket.fd(), POLLIN, 0};
    if (poll(&wanted, 1, kPatienceMs) != 1) std::abort();
    if (socket.receive(offer, memory_fd) != LaneSocket::Got::kPacket) std::abort();
    return socket;
  }

 private:
  int accept(int patience_ms) const {
    pollfd wanted = {fd_, POLLIN, 0};
    return poll(&wanted, 1, patience_ms) == 1 ? accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC) : -1;
  }

  SocketAddress address_;
  int fd_;
};

TEST(ShmFalseAcceptorTest, OtherAnswersSendTheDialBelowAndTwoOfThemForGood) {
  const std::vector<std::string> answers = {"",
                                            "x",
                                            std::string(sizeof(LaneAnswer), '\0'),
                                            std::string(sizeof(LaneAnswer), '\xff'),
                                            std::string(200, 'x'),
                                            std::string(1, '\0')};
  for (const std::string& text : answers) {
    Side below(kind_of("off"));
    Side client(kind_of(""));
    std::string address;
    below.run([&below, &address] { address = below.transport().private_address(); });
    Listening listening(below, address);
    FalseAcceptor acceptor(address);
    for (int i = 0; i < 3; ++i) {
      Dialled dialled(client, address);
      const int accepted = acceptor.accept_offer(i < 2 ? kPatienceMs : 0);
      EXPECT_EQ(accepted >= 0, i < 2);
      if (accepted >= 0) {
        if (!text.empty()) send(accepted, text.data(), text.size(), MSG_NOSIGNAL);
        close(accepted);
      }
      ASSERT_EQ(dialled.record().next("connected").what, "connected");
      ASSERT_TRUE(dialled.send({text_frame("hello")}));
      EXPECT_EQ(text_of(listening.record().next("message").frames.at(0)), "hello");
    }
    std::string way;
    client.run([&client, &way, &address] { way = client.transport().lane_report().ways.at(address); });
    EXPECT_EQ(way, "lanes to it have failed twice");
  }
}

TEST(ShmFalseAcceptorTest, AnAcceptorThatSaysNothingDelaysTheDial) {
  Side below(kind_of("off"));
  Side client(kind_of(""));
  std::string address;
  below.run([&below, &address] { address = below.transport().private_address(); });
  Listening listening(below, address);
  FalseAcceptor acceptor(address);
  Dialled dialled(client, address);
  EXPECT_FALSE(dialled.send({text_frame("early")}));
  EXPECT_EQ(dialled.record().next("connected").what, "connected");
  EXPECT_EQ(dialled.record().next("writable").what, "writable");
}

// ---- a stranger gives back ----

constexpr uint64_t kVictim = 5;
constexpr uint64_t kStranger = 7;
constexpr uint32_t kLentBytes = 256u << 10;

// A victim that has lent a stranger a part of its memory, from `kLentAt` on.
class Lending {
 public:
  static constexpr uint64_t kLentAt = 64u << 10;

  Lending() : victim_(kind()) {
    victim_.run([this] {
      address_ = victim_.transport().private_address();
      other_ = victim_.transport().private_address();
    });
    listening_.emplace(victim_, address_);
    acceptor_.emplace(other_);
    dialled_.emplace(victim_, other_);
    int fd = -1;
    socket_ = acceptor_->accept_memory(fd);
    memory_.emplace(LaneMemory::adopt(fd, kLaneSizes));
    if (!socket_.send(LaneAnswer{kLaneMagic, kLaneVersion, 1, kStranger})) std::abort();
    dialled_->record().next("connected");
    bytes_ = shared_memory::allocate(size_t{1} << 20);
    place_ = shared_memory::find(bytes_, size_t{1} << 20);
    owner_ = std::shared_ptr<const void>(
        bytes_, [](const void* place) { shared_memory::free(static_cast<std::byte*>(const_cast<void*>(place))); });
    lend();
  }
  void lend() {
    Frames frames = {Frame::of({}), Frame(bytes_ + kLentAt, kLentBytes, owner_)};
    victim_.run([this, &frames] {
      dialled_->connection().lend(frames, 0);
      if (!dialled_->connection().send(frames)) std::abort();
    });
  }
  // A small message, before which the victim looks at what is back.
  void send_small() {
    Frames frames = {Frame::of({}), text_frame("x")};
    victim_.run([this, &frames] {
      dialled_->connection().lend(frames, 0);
      dialled_->connection().send(frames);
    });
  }

  // The entry of the only loan: numbers begin with 0.
  ReturnedLoan& returned() { return memory_->returned(0); }
  void end_lane() { dialled_->close(); }
  Loan loan(uint64_t offset = kLentAt, uint32_t number = 0) const {
    return {place_->block->id(), place_->offset + offset, number | kGivenBack, 0};
  }
  const std::string& address() const { return address_; }
  const std::byte* bytes() const { return bytes_; }
  Record& record() { return listening_->record(); }
  bool refuses(const Loan& loan, uint32_t size, uint64_t worker = kStranger, uint32_t damage = 0) const {
    Stranger stranger(address_);
    if (!stranger.open(worker)) return false;
    write_loan(stranger, loan, size, damage);
    return stranger.is_hung_up_on();
  }

 private:
  static TransportKind kind() {
    TransportKind kind;
    kind.name = "shm";
    kind.make = [](FdLoop& loop) {
      return std::make_unique<ShmTransport>(loop, make_zmtp(loop), "", nullptr, kVictim);
    };
    return kind;
  }

  Side victim_;
  std::string address_;
  std::string other_;
  std::optional<Listening> listening_;
  std::optional<FalseAcceptor> acceptor_;
  std::optional<Dialled> dialled_;
  LaneSocket socket_;
  std::optional<LaneMemory> memory_;
  std::byte* bytes_ = nullptr;
  std::optional<shared_memory::Found> place_;
  std::shared_ptr<const void> owner_;
};

TEST(ShmGivingStrangerTest, WhatItWasLentItMayGiveBackAsOftenAsItLikes) {
  Lending lending;
  Stranger stranger(lending.address());
  ASSERT_TRUE(stranger.open(kStranger));
  Loan loans[] = {lending.loan(Lending::kLentAt, 0), lending.loan(Lending::kLentAt + 4, 1)};
  loans[0].check = loans[0].checksum(kLentBytes);
  loans[1].check = loans[1].checksum(kLentBytes - 4);
  const uint32_t head[] = {3, 0, kLentBytes | 1u << 31, (kLentBytes - 4) | 1u << 31};
  std::memcpy(stranger.bytes(), head, sizeof head);
  std::memcpy(stranger.bytes() + sizeof head, loans, sizeof loans);
  stranger.written() = sizeof head + sizeof loans;
  stranger.wake();
  const Frames frames = lending.record().next("message").frames;
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[1].data(), lending.bytes() + Lending::kLentAt);
  EXPECT_EQ(frames[2].data(), lending.bytes() + Lending::kLentAt + 4);
  EXPECT_EQ(frames[2].size(), kLentBytes - 4);
  EXPECT_EQ(stranger.memory()[4096], std::byte{1}) << "the names are done with";
  EXPECT_EQ(stranger.memory()[4097], std::byte{1});
}

// Each ends the lane on which it came.
TEST(ShmGivingStrangerTest, WhatItWasNotLentEndsTheLane) {
  Lending lending;
  const uint64_t end = Lending::kLentAt + kLentBytes;
  EXPECT_TRUE(lending.refuses(lending.loan(Lending::kLentAt - 1), 100)) << "begins before it";
  EXPECT_TRUE(lending.refuses(lending.loan(end - 99), 100)) << "ends behind it";
  EXPECT_TRUE(lending.refuses(lending.loan(end), 100)) << "lies in the same block";
  EXPECT_TRUE(lending.refuses(lending.loan(Lending::kLentAt, kMaxLoans), 100)) << "a number that is none";
  EXPECT_TRUE(lending.refuses(lending.loan(), 100, kStranger, 1)) << "a place that was changed on its way";
  EXPECT_TRUE(lending.refuses(lending.loan(), 100, kStranger + 1)) << "lent to another worker";
  EXPECT_TRUE(lending.refuses(lending.loan(), 100, 0)) << "by nobody";
  for (const uint64_t block : {uint64_t{0}, lending.loan().block + 1, UINT64_MAX}) {
    Loan loan = lending.loan();
    loan.block = block;
    EXPECT_TRUE(lending.refuses(loan, 100)) << "another block, " << block;
  }
  for (const uint64_t offset : {UINT64_MAX, UINT64_MAX - 99, uint64_t{1} << 63}) {
    Loan loan = lending.loan();
    loan.offset = offset;
    EXPECT_TRUE(lending.refuses(loan, 100)) << "at " << offset;
  }
}

TEST(ShmGivingStrangerTest, WhatItHasReturnedItGivesBackNoMore) {
  Lending lending;
  lending.returned() = 1;
  lending.send_small();
  EXPECT_TRUE(lending.refuses(lending.loan(), kLentBytes));
  lending.lend();
  lending.end_lane();
  EXPECT_TRUE(lending.refuses(lending.loan(), kLentBytes)) << "after the end of the lane that lent it";
}

// The number of a worker is no secret; its process is what the system says.
TEST(ShmGivingStrangerTest, AnotherProcessGivesNothingBack) {
  struct Order {
    char address[108] = {};
    Loan loan;
  };
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  const pid_t child = fork();  // before there are threads
  if (child == 0) {
    close(pipes[1]);
    Order order;
    bool is_refused = false;
    if (read(pipes[0], &order, sizeof order) == sizeof order) {
      Stranger stranger(order.address);
      if (stranger.open(kStranger)) {
        write_loan(stranger, order.loan, kLentBytes);
        is_refused = stranger.is_hung_up_on();
      }
    }
    _exit(is_refused ? 0 : 1);
  }
  {
    Lending lending;
    Order order;
    std::snprintf(order.address, sizeof order.address, "%s", lending.address().c_str());
    order.loan = lending.loan();
    ASSERT_EQ(write(pipes[1], &order, sizeof order), static_cast<ssize_t>(sizeof order));
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  close(pipes[0]);
  close(pipes[1]);
}

// ---- what both want ----

TEST_F(ShmHostileTest, OpenLanesThatRestCostNothing) {
  Dialled there(client_, address_);
  there.record().next("connected");
  ASSERT_TRUE(there.send({text_frame("hello")}));
  listening_->record().next("message");
  EXPECT_EQ(report(victim_).open, 1u);
  pass_time(20 * kMillisecond);
  const uint64_t sleeps = report(victim_).sleeps;
  const Nanos before = process_time();
  pass_time(3 * kSecond);
  // Two loops: below a thousandth of a core for each is 6,000 us. How often they wake is counted.
  std::printf("figure: unit_transport.resting_lanes_us %.0f us\n", 1e-3 * static_cast<double>(process_time() - before));
  EXPECT_GT(report(victim_).sleeps, 0u);
  EXPECT_LE(report(victim_).sleeps, sleeps + 3);
}

TEST_F(ShmHostileTest, ALaneThatIsDistrustedTwiceIsNotDialledAgain) {
  for (int i = 0; i < 2; ++i) {
    Dialled dialled(client_, address_);
    dialled.record().next("connected");
    EXPECT_EQ(report(client_).ways.at(address_), "lane");
    client_.run([&dialled] { dialled.connection().distrust(); });
  }
  EXPECT_EQ(dial_way(), "lanes to it have failed twice");
  listening_.reset();  // another one that listens there is another matter
  listening_ = std::make_unique<Listening>(victim_, address_);
  EXPECT_EQ(dial_way(), "lane");
}

TEST_F(ShmHostileTest, NoFileIsLeft) {
  const SocketAddress lane = lane_address(address_).value();
  EXPECT_EQ(access(lane.path(), F_OK), 0);
  listening_.reset();
  EXPECT_NE(access(lane.path(), F_OK), 0);
}

TEST_F(ShmHostileTest, APathThatIsTakenLeavesTheWayBelow) {
  std::string address;
  victim_.run([this, &address] { address = victim_.transport().private_address(); });
  const int file = open(lane_address(address).value().path(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  close(file);
  {
    Listening listening(victim_, address);
    Dialled dialled(client_, address);
    EXPECT_EQ(dialled.record().next("connected").what, "connected");
  }
  EXPECT_NE(report(client_).ways.at(address), "lane");
  EXPECT_NE(report(victim_).ways.at(address).find("remove it"), std::string::npos);
  EXPECT_EQ(unlink(lane_address(address).value().path()), 0);  // it is still there
}

}  // namespace
}  // namespace distag::testing
