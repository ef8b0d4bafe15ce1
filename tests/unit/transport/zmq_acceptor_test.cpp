// The ROUTER of libzmq: strangers that it refuses, peers that it accepts and that misbehave, and what it costs before
// anybody dials.
#include "transport/zmq/zmq_acceptor.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "contract/transport_contract.h"
#include "support/sockets.h"
#include "support/zmq_sides.h"
#include "transport/socket/group_key.h"

namespace distag::testing {
namespace {

constexpr const char* kOtherSecret = "another secret, of another group of tests";

size_t entries_of(const char* path) {
  size_t count = 0;
  DIR* const directory = opendir(path);
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

bool has_threads_of_libzmq() {
  bool found = false;
  DIR* const directory = opendir("/proc/self/task");
  while (const dirent* const entry = readdir(directory)) {
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
    std::string name;
    found = found || (std::getline(file, name) && name.rfind("ZMQ", 0) == 0);
  }
  closedir(directory);
  return found;
}

// Counts the threads of this process once those of libzmq of earlier tests are gone: a joined thread is listed until
// the system is done with it.
size_t count_threads(Side& side) {
  for (const Nanos until = side.loop().now() + kPatience; has_threads_of_libzmq();) {
    if (side.loop().now() >= until) {
      ADD_FAILURE() << "threads of libzmq are left from an earlier test";
      break;
    }
    poll(nullptr, 0, 1);
  }
  return entries_of("/proc/self/task");
}

// A DEALER of libzmq with a routing id of its own choice.
class Chosen {
 public:
  Chosen(const std::string& endpoint, const std::string& routing_id)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
    const int no_wait = 0, patience = 30'000;
    zmq_setsockopt(socket_, ZMQ_LINGER, &no_wait, sizeof no_wait);
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience, sizeof patience);
    zmq_setsockopt(socket_, ZMQ_ROUTING_ID, routing_id.data(), routing_id.size());
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0);
  }
  ~Chosen() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void say(const std::string& text) {
    EXPECT_EQ(zmq_send(socket_, text.data(), text.size(), 0), static_cast<int>(text.size()));
  }
  std::string hear() {
    char text[64];
    const int size = zmq_recv(socket_, text, sizeof text, 0);
    return size < 0 ? "nothing" : std::string(text, static_cast<size_t>(size));
  }

 private:
  void* const context_;
  void* const socket_;
};

TEST(ZmqAcceptor, HasNothingOfLibzmqBeforeTheFirstDialler) {
  Side side(zmq_kind(kSecret));
  side.run([] {});
  const size_t threads = count_threads(side), descriptors = entries_of("/proc/self/fd");
  std::optional<Listening> listening(std::in_place, side, "tcp://127.0.0.1:0");
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors + 1) << "the listening socket";
  Dialled dialled(side, listening->endpoint());
  EXPECT_EQ(dialled.record().next("connected").what, "connected");
  EXPECT_EQ(entries_of("/proc/self/task"), threads + 2) << "the IO thread and the reaper";
}

// Payload is copied and freed where it is handed out: other tasks of the loop come between large messages.
TEST(ZmqAcceptor, HandsOutAFewLargeMessagesInATurn) {
  constexpr int kMessages = 20;
  Side side(zmq_kind(nullptr));
  std::string endpoint;
  std::unique_ptr<Acceptor> acceptor;
  const auto all = Future<Unit>::make(), first = Future<Unit>::make();
  int count = 0, in_turn = 0, most = 0;
  side.run([&] {
    AcceptorEvents events;
    events.on_message = [&](const ConnectionToken&, const Frames&) {
      most = std::max(most, ++in_turn);
      side.loop().post_or_drop([&in_turn] { in_turn = 0; });
      if (++count == 1) first->complete(Unit{});
      if (count == 1 + kMessages) all->complete(Unit{});
    };
    acceptor = side.transport().listen("tcp://127.0.0.1:0", std::move(events));
    endpoint = acceptor->endpoint();
  });
  Chosen sender(endpoint, "sender");
  sender.say("hello");
  ASSERT_TRUE(wait(*first, kPatience));
  const std::string large(size_t{1} << 18, 'x');
  side.run([&] {
    for (int i = 0; i < kMessages; ++i) sender.say(large);
    for (const Nanos until = side.loop().now() + 200 * kMillisecond; side.loop().now() < until;) {
    }  // until several are there
  });
  ASSERT_TRUE(wait(*all, kPatience));
  EXPECT_LE(most, 2);
  side.run([&] { acceptor.reset(); });
}

// A thread that was joined is listed until the system is done with it.
bool has_threads(size_t wanted, Side& side) {
  for (const Nanos until = side.loop().now() + kPatience; side.loop().now() < until;) {
    if (entries_of("/proc/self/task") == wanted) return true;
    poll(nullptr, 0, 1);
  }
  return false;
}

// Keeps what is posted until it is let go.
class HoldingExecutor final : public Executor {
 public:
  bool post(Task task) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    return true;
  }
  size_t waiting() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return tasks_.size();
  }
  void run_all() {
    for (Task& task : std::exchange(tasks_, {})) task();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Task> tasks_;
};

// With as many connections as a member of a group of 256 has: the loop waits for none of them to be closed.
TEST(ZmqAcceptor, TheContextEndsOnThePool) {
  HoldingExecutor pool;
  const TransportKind kind{"zmq",
                           [&pool](FdLoop& loop) {
                             return std::make_unique<SocketTransport>(std::make_unique<ZmqEngine>(loop, &pool, kLook),
                                                                      Security{});
                           },
                           {},
                           {},
                           {},
                           false};
  Side watcher(zmq_kind(nullptr));
  watcher.run([] {});
  const size_t descriptors = entries_of("/proc/self/fd");
  const size_t threads = count_threads(watcher);
  {
    Side side(kind);
    std::string address;
    side.run([&] { address = side.transport().private_address(); });
    Listening listening(side, address);
    std::vector<std::unique_ptr<Dialled>> dialled;
    for (int i = 0; i < 255; ++i) dialled.push_back(std::make_unique<Dialled>(side, listening.endpoint()));
    for (const auto& one : dialled) ASSERT_EQ(one->record().next("connected").what, "connected");
  }
  ASSERT_EQ(pool.waiting(), 1u);
  EXPECT_TRUE(has_threads(threads + 2, watcher)) << "the IO thread and the reaper";
  pool.run_all();
  EXPECT_TRUE(has_threads(threads, watcher));
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
}

// The limit is lowered for this process alone, and given back.
class FreeDescriptors {
 public:
  explicit FreeDescriptors(rlim_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest = dup(0);
    close(lowest);
    rlimit few = before_;
    for (few.rlim_cur = static_cast<rlim_t>(lowest); count > 0; ++few.rlim_cur) {
      if (fcntl(static_cast<int>(few.rlim_cur), F_GETFD) < 0) --count;
    }
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FreeDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// libzmq ends the process where it finds none: who dials waits in the backlog.
TEST(ZmqAcceptor, TheFirstBindWaitsForDescriptors) {
  Served served(nullptr);
  const size_t threads = count_threads(served.side());
  std::optional<FreeDescriptors> few(std::in_place, ZmqContext::kDescriptorReserve);  // one is the dialler's
  const Raw raw(served.endpoint());
  served.pass(200 * kMillisecond);
  EXPECT_EQ(entries_of("/proc/self/task"), threads) << "nothing of libzmq is there";
  few.reset();
  raw.shake("");
  raw.say(std::string("\0\2hi", 4));
  EXPECT_EQ(text_of(served.record().next("message").frames.at(0)), "hi");
}

TEST(ZmqConnection, ADialWithFewDescriptorsIsRefused) {
  Served served(nullptr);
  Side side(zmq_kind(nullptr));
  const auto status_of_dial = [&] {
    try {
      const Dialled dialled(side, served.endpoint());
      return Status::kOk;
    } catch (const Error& error) {
      return error.status();
    }
  };
  {
    const FreeDescriptors few(ZmqContext::kDescriptorReserve - 1);
    EXPECT_EQ(status_of_dial(), Status::kOutOfMemory);
  }
  EXPECT_EQ(status_of_dial(), Status::kOk);
}

// Each is counted once, with its reason; a member is served meanwhile and after it.
TEST(ZmqAcceptor, CountsThoseWhoAreNotLetIn) {
  Served served(kSecret);
  Side member(zmq_kind(kSecret));
  Dialled dialled(member, served.endpoint());
  ASSERT_EQ(dialled.record().next("connected").what, "connected");
  ASSERT_TRUE(dialled.send({text_frame("hello")}));
  EXPECT_EQ(text_of(served.record().next("message").frames.at(0)), "hello");
  const std::vector<std::pair<std::string, std::string>> strangers = {
      {"GET / HTTP/1.1\r\n\r\n", "it speaks no ZMTP"},
      {greeting_of("NULL"), "it has no key"},
      {greeting_of("PLAIN"), "it has no key"},
      {greeting_of("CURVE") + std::string("\4\6\5READY", 8), "its handshake breaks the protocol of CURVE"}};
  for (const auto& [bytes, why] : strangers) {
    const Raw raw(served.endpoint());
    raw.say(bytes);
    raw.await_end();
    const std::string text = text_of(served.record().next("denied").frames.at(0));
    EXPECT_NE(text.find(why), std::string::npos) << text;
  }
  for (int i = 0; i < 300; ++i) {
    const Raw raw(served.endpoint());
    if (i % 3 == 0) raw.await_greeting();
    if (i % 3 == 1) raw.say(greeting_of("CURVE").substr(0, 11));
  }
  for (int i = 0; i < 300; ++i) ASSERT_EQ(served.record().next("denied").what, "denied") << i;
  ASSERT_TRUE(dialled.send({text_frame("still here")}));
  EXPECT_EQ(text_of(served.record().next("message").frames.at(0)), "still here");
  served.pass(100 * kMillisecond);
  EXPECT_EQ(served.count("denied"), strangers.size() + 300);
}

// Half a greeting and then nothing, and no READY: the handshake has its time, and others are served meanwhile.
TEST(ZmqAcceptor, WhoDoesNotEndItsHandshakeIsSentAway) {
  Served served(nullptr);
  const Raw half(served.endpoint()), without_ready(served.endpoint()), message_first(served.endpoint());
  half.say(greeting_of("NULL").substr(0, 11));
  without_ready.say(greeting_of("NULL"));
  message_first.say(greeting_of("NULL") + std::string("\0\2hi", 4));
  const Raw member(served.endpoint());
  member.shake("");
  member.say(std::string("\0\5hello", 7));
  EXPECT_EQ(text_of(served.record().next("message").frames.at(0)), "hello");
  for (const Raw* stranger : {&half, &without_ready, &message_first}) stranger->await_end();
  while (served.count("denied") < 3) served.pass(kMillisecond);
  served.pass(100 * kMillisecond);
  EXPECT_EQ(served.count("denied"), 3u);
  EXPECT_EQ(served.count("message"), 1u);
}

size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6));
  }
  return 0;
}

// Each is counted once; the first thousand may make what the next ones use again.
TEST(ZmqAcceptor, AThousandWhoHangUpAreCountedAndLeaveNothing) {
  Served served(kSecret);
  Side side(zmq_kind(kSecret));
  Dialled member(side, served.endpoint());
  ASSERT_EQ(member.record().next("connected").what, "connected");
  const auto hang_up = [&served] {
    for (int i = 0; i < 1000; ++i) {
      const Raw raw(served.endpoint());
      if (i % 2 == 0) raw.say(greeting_of("CURVE").substr(0, 11));
    }
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(served.record().next("denied").what, "denied") << i;
  };
  hang_up();
  served.pass(100 * kMillisecond);
  const size_t descriptors = entries_of("/proc/self/fd");
  [[maybe_unused]] const size_t before = resident_kib();
  hang_up();
  served.pass(100 * kMillisecond);
  [[maybe_unused]] const size_t after = resident_kib();
  ASSERT_TRUE(member.send({text_frame("still here")}));
  EXPECT_EQ(text_of(served.record().next("message").frames.at(0)), "still here");
  EXPECT_LE(entries_of("/proc/self/fd"), descriptors);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have memory of their own
  EXPECT_LT(after, before + 1000) << "KiB: less than one for each";
#endif
  served.pass(100 * kMillisecond);
  EXPECT_EQ(served.count("denied"), 2000u);
}

// Their handshake is told by another way than their message, and may be looked at after it.
TEST(ZmqAcceptor, MembersWhoSpeakAtOnceAreNoStrangers) {
  constexpr size_t kMembers = 300;
  Served served(nullptr);
  std::vector<std::unique_ptr<Raw>> members;
  for (size_t i = 0; i < kMembers; ++i) {
    members.push_back(std::make_unique<Raw>(served.endpoint()));
    members.back()->shake("");
    members.back()->say(std::string("\0\2hi", 4));
  }
  for (size_t i = 0; i < kMembers; ++i) ASSERT_EQ(served.record().next("message").what, "message") << i;
  served.pass(100 * kMillisecond);
  EXPECT_EQ(served.count("message"), kMembers);
  EXPECT_EQ(served.count("denied"), 0u);
}

TEST(ZmqAcceptor, AForkedChildHasNoneOfTheConnectionsThatHaveSaidNothing) {
  Served served(nullptr);
  const Raw raw(served.endpoint());
  raw.shake("");
  served.pass(50 * kMillisecond);  // the monitor has told
  EXPECT_TRUE(raw.is_held_here());
  const pid_t child = fork();
  if (child == 0) _exit(raw.is_held_here() ? 1 : 0);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ZmqAcceptor, ARoutingIdIsNoConnection) {
  Served served(nullptr);
  auto first = std::make_unique<Chosen>(served.endpoint(), "chosen");
  first->say("one");
  const ConnectionToken one = served.record().next("message").from;
  {
    Chosen second(served.endpoint(), "chosen");  // held by libzmq as long as the first one lives
    second.say("two");
    served.pass(100 * kMillisecond);
    EXPECT_EQ(served.count("message"), 1u);
    EXPECT_TRUE(served.reply(one, "to the first"));
    EXPECT_EQ(first->hear(), "to the first");
  }
  first.reset();
  bool is_open = true;
  for (int i = 0; i < 10'000 && is_open; ++i) is_open = served.reply(one, "late");
  EXPECT_FALSE(is_open);
  Chosen third(served.endpoint(), "chosen");
  third.say("three");
  const Record::Event event = served.record().next("message");
  EXPECT_EQ(text_of(event.frames.at(0)), "three");
  EXPECT_NE(event.from, one);
  EXPECT_FALSE(served.reply(one, "late")) << "it is not the one that shows the id now";
  EXPECT_TRUE(served.reply(event.from, "to the third"));
  EXPECT_EQ(third.hear(), "to the third");
}

// The IO thread has done all that it had to do before: it greets a connection, which is given back.
std::unique_ptr<Raw> pass_io_thread(const std::string& endpoint) {
  auto raw = std::make_unique<Raw>(endpoint);
  raw->await_greeting();
  return raw;
}

// The end of its handshake is told by the monitor, which this turn has looked at before, then its message comes.
TEST(ZmqAcceptor, AMemberWhoSpeaksAtOnceIsNoStranger) {
  Side side(zmq_kind(nullptr));
  Record record;
  std::string endpoint;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<Raw> late, passed;
  side.run([&] {
    AcceptorEvents events = recording_acceptor(record);
    events.on_message = [&](const ConnectionToken& from, const Frames& frames) {
      record.add({"message", frames, from});
      if (text_of(frames.at(0)) != "go") return;
      late->say(ready_of("") + std::string("\0\4late", 6));
      passed = pass_io_thread(endpoint);
    };
    acceptor = side.transport().listen("tcp://127.0.0.1:0", std::move(events));
    endpoint = acceptor->endpoint();
  });
  late = std::make_unique<Raw>(endpoint);
  late->greet();
  const Raw speaker(endpoint);
  speaker.shake("");
  speaker.say(std::string("\0\2hi", 4));
  EXPECT_EQ(text_of(record.next("message").frames.at(0)), "hi");
  speaker.say(std::string("\0\2go", 4));
  EXPECT_EQ(text_of(record.next("message").frames.at(0)), "go");
  EXPECT_EQ(text_of(record.next("message").frames.at(0)), "late");
  for (int i = 0; i < 2; ++i) side.run([] {});  // this turn is over, and so are the tasks that it has posted
  EXPECT_EQ(record.all(), std::vector<std::string>(3, "message"));
  side.run([&] { acceptor.reset(); });
}

// A call of libzmq takes in silently what has come: the descriptor of the socket tells nothing of it any more.
TEST(ZmqConnection, AnAnswerThatASendHasTakenInIsHandedOut) {
  Served served(nullptr);
  Side side(zmq_kind(nullptr));
  Dialled dialled(side, served.endpoint());
  ASSERT_EQ(dialled.record().next("connected").what, "connected");
  ASSERT_TRUE(dialled.send({text_frame("hello")}));
  const ConnectionToken from = served.record().next("message").from;
  std::binary_semaphore waits(0), goes_on(0);
  side.loop().post_or_drop([&] {
    waits.release();
    goes_on.acquire();
    EXPECT_TRUE(dialled.connection().send({text_frame("more")}));
  });
  waits.acquire();
  EXPECT_TRUE(served.reply(from, "answer"));
  served.pass(100 * kMillisecond);  // it is there
  goes_on.release();
  EXPECT_EQ(text_of(dialled.record().next("message").frames.at(0)), "answer");
}

TEST(ZmqAcceptor, AMessageThatAnAnswerHasTakenInIsHandedOut) {
  Served served(nullptr);
  Side side(zmq_kind(nullptr));
  Dialled dialled(side, served.endpoint());
  ASSERT_EQ(dialled.record().next("connected").what, "connected");
  ASSERT_TRUE(dialled.send({text_frame("hello")}));
  const ConnectionToken from = served.record().next("message").from;
  std::binary_semaphore waits(0), goes_on(0);
  served.side().loop().post_or_drop([&] {
    waits.release();
    goes_on.acquire();
    EXPECT_TRUE(served.acceptor().reply(from, {text_frame("answer")}));
  });
  waits.acquire();
  EXPECT_TRUE(dialled.send({text_frame("more")}));
  poll(nullptr, 0, 100);  // it is there
  goes_on.release();
  EXPECT_EQ(text_of(served.record().next("message").frames.at(0)), "more");
}

// The end of a connection is looked at once no more messages wait: until then another one may have come by its id.
TEST(ZmqAcceptor, AnIdThatWasTakenOverSaysNothingOfTheConnection) {
  constexpr int kSpeakers = 8, kMessages = 60;  // of each: what libzmq queues of a connection
  Side side(zmq_kind(nullptr));
  Record record;
  std::string endpoint;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<Raw> first, second;
  ConnectionToken gone;
  int count = 0;
  const auto on_count = [&] {
    const bool is_half = count == kSpeakers * kMessages / 2;  // libzmq has read the end, and told the IO thread
    if (count == 1) first->hang_up();
    if (count == 1 || is_half) pass_io_thread(endpoint);
    if (!is_half) return;
    second->say(ready_of(property("Identity", "chosen")) + std::string("\0\3two", 5));
    pass_io_thread(endpoint);
  };
  side.run([&] {
    AcceptorEvents events;
    events.on_message = [&](const ConnectionToken& from, const Frames& frames) {
      const std::string text = text_of(frames.at(0));
      if (text == "x" && ++count > 0) return on_count();
      if (text == "two") {
        EXPECT_LT(count, kSpeakers * kMessages) << "messages wait";
        EXPECT_FALSE(acceptor->reply(gone, {text_frame("to the first")}));
        EXPECT_EQ(acceptor->name_of(gone), "");
      }
      record.add({"message", frames, from});
    };
    acceptor = side.transport().listen("tcp://127.0.0.1:0", std::move(events));
    endpoint = acceptor->endpoint();
  });
  first = std::make_unique<Raw>(endpoint);
  first->shake(property("Identity", "chosen"));
  first->say(std::string("\0\3one", 5));
  gone = record.next("message").from;
  second = std::make_unique<Raw>(endpoint);
  second->greet();
  std::vector<std::unique_ptr<Raw>> speakers;
  for (int i = 0; i < kSpeakers; ++i) {
    speakers.push_back(std::make_unique<Raw>(endpoint));
    speakers.back()->shake("");
    speakers.back()->say(std::string("\0\5hello", 7));
    record.next("message");
  }
  std::string messages;
  for (int i = 0; i < kMessages; ++i) messages += std::string("\0\1x", 3);
  side.run([&] {
    for (const auto& speaker : speakers) speaker->say(messages);
    pass_io_thread(endpoint);
  });
  EXPECT_EQ(text_of(record.next("message").frames.at(0)), "two");
  side.run([&] { acceptor.reset(); });
}

// The user id that libzmq shows as a property of the message comes from the handler alone.
TEST(ZmqAcceptor, AUserIdThatAPeerShowsIsNone) {
  Served served(nullptr);
  const Raw raw(served.endpoint());
  raw.shake(property("User-Id", "forged/7//"));
  raw.say(std::string("\0\2hi", 4));
  const Record::Event event = served.record().next("message");
  EXPECT_EQ(text_of(event.frames.at(0)), "hi");
  EXPECT_EQ(event.from.size(), 8u);
  EXPECT_NE(event.from, (ConnectionToken{std::byte{7}, {}, {}, {}, {}, {}, {}, {}}));
}

TEST(ZmqAcceptor, AMessageOfTooManyFramesIsNotHandedOut) {
  Served served(nullptr);
  Side member(zmq_kind(nullptr));
  Dialled dialled(member, served.endpoint());
  ASSERT_EQ(dialled.record().next("connected").what, "connected");
  const Raw raw(served.endpoint());
  std::string frames;
  for (int i = 0; i < 100'000; ++i) frames += std::string("\1\0", 2);
  raw.shake("");
  raw.say(frames + std::string("\0\0\0\5after", 9));
  raw.await_end();
  ASSERT_TRUE(dialled.send({text_frame("hello")}));
  EXPECT_EQ(text_of(served.record().next("message").frames.at(0)), "hello");
  served.pass(200 * kMillisecond);
  EXPECT_EQ(served.count("message"), 1u);
}

// Over a slow link the receiver hears of the sender long before a message is whole.
TEST(ZmqAcceptor, PartsOfAMessageAreToldOf) {
  Served served(nullptr);
  const Raw raw(served.endpoint());
  raw.shake("");
  raw.say(std::string("\0\5hello", 7));
  const ConnectionToken from = served.record().next("message").from;
  served.pass(3 * kLook);
  EXPECT_LE(served.count("part"), 1u) << "nothing more has come";
  const size_t before = served.count("part");
  raw.say(std::string("\2\0\0\0\0\0\0\x40\0", 9) + std::string(1000, 'x'));  // of 16,384 bytes
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(served.record().next("part").from, from);
    raw.say(std::string(1000, 'x'));
  }
  EXPECT_GE(served.count("part"), before + 3);
  EXPECT_EQ(served.count("message"), 1u);
}

// The key of a listener of libzmq is another one: it hangs up at HELLO, each time.
TEST(ZmqConnection, AListenerThatKnowsAnotherKeyIsADenial) {
  Served served(kSecret);
  Side side(zmq_kind(kOtherSecret));
  Record record;
  std::unique_ptr<Connection> connection;
  side.run([&] {
    ConnectionEvents events = recording(record);
    events.on_denied = [&record] { record.add({"denied", {}, {}}); };
    connection = side.transport().dial(served.endpoint(), std::move(events));
  });
  EXPECT_EQ(record.next("dropped").what, "dropped");
  EXPECT_EQ(record.all(), (std::vector<std::string>{"denied", "dropped"}));
  side.run([&connection] { connection.reset(); });
}

}  // namespace
}  // namespace distag::testing
