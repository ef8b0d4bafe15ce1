// HTTP over real sockets, with a server that answers as a test wants it.
#include "group/curl_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "base/executor.h"
#include "base/fd_loop.h"
#include "base/future.h"

namespace distag {
namespace {

// Writes the text of its path to who asks, then ends the connection; for a path that it does not know it waits until
// the other side does.
class Server {
 public:
  explicit Server(std::map<std::string, std::string> answers)
      : answers_(std::move(answers)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~Server() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    for (const int fd : connections_) shutdown(fd, SHUT_RDWR);
    for (std::thread& one : servants_) one.join();
    for (const int fd : connections_) close(fd);
  }

  std::string url(const std::string& path) const { return fmt::format("http://127.0.0.1:{}{}", port_, path); }
  std::string last_request() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_;
  }

 private:
  void accept_all() {
    for (int fd = accept(listener_, nullptr, nullptr); fd >= 0; fd = accept(listener_, nullptr, nullptr)) {
      connections_.push_back(fd);
      servants_.emplace_back([this, fd] { serve(fd); });
    }
  }
  void serve(int fd) {
    std::string request;
    char bytes[4096];
    while (request.find("END") == std::string::npos) {  // of the body
      const ssize_t count = read(fd, bytes, sizeof bytes);
      if (count <= 0) return;
      request.append(bytes, static_cast<size_t>(count));
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      last_ = request;
    }
    const size_t begin = request.find(' ') + 1;
    const auto answer = answers_.find(request.substr(begin, request.find(' ', begin) - begin));
    if (answer != answers_.end()) {
      send(fd, answer->second.data(), answer->second.size(), MSG_NOSIGNAL);
      shutdown(fd, SHUT_WR);
    }
    while (read(fd, bytes, sizeof bytes) > 0) {
    }
  }

  const std::map<std::string, std::string> answers_;
  const int listener_;
  int port_ = 0;
  std::mutex mutex_;
  std::string last_;
  std::list<int> connections_;
  std::list<std::thread> servants_;
  std::thread acceptor_;
};

std::string ok(const std::string& body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}

class CurlClientTest : public ::testing::Test {
 protected:
  CurlClientTest() { loop_.start(); }
  ~CurlClientTest() override {
    loop_.stop();
    client_.reset();
  }

  static HttpRequest request(const std::string& url) {
    HttpRequest made;
    made.url = url;
    made.body = "{\"to\":\"END\"}";
    made.timeout = 600 * kSecond;
    made.most_bytes = 1000;
    return made;
  }
  std::shared_ptr<Future<HttpAnswer>> send(HttpRequest request) {
    auto future = Future<HttpAnswer>::make();
    request.read = [this, future](const HttpAnswer& answer) -> Task {
      EXPECT_TRUE(answer.outcome == HttpAnswer::Outcome::kUnsupported || !loop_.is_current());
      return [this, future, answer] {
        EXPECT_TRUE(loop_.is_current());
        future->complete(answer);
      };
    };
    on_loop([&] { client_->send(std::move(request)); });
    return future;
  }
  HttpAnswer ask(HttpRequest request) {
    const auto future = send(std::move(request));
    EXPECT_TRUE(distag::wait(*future, 120 * kSecond));
    return future->value();
  }
  void on_loop(const std::function<void()>& what) {
    const auto done = Future<Unit>::make();
    loop_.post_or_drop([&what, done] {
      what();
      done->complete(Unit{});
    });
    EXPECT_TRUE(distag::wait(*done, 120 * kSecond));
  }

  FdLoop loop_{"loop", ThreadHooks{}};
  std::unique_ptr<CurlClient> client_ = std::make_unique<CurlClient>(loop_, ThreadHooks{});
};

TEST_F(CurlClientTest, PostsJsonAndGivesStatusAndBody) {
  Server server({{"/a", ok("hello")}, {"/b", "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"}});
  HttpRequest one = request(server.url("/a"));
  one.token = "a.token";
  const HttpAnswer answer = ask(one);
  EXPECT_EQ(answer.outcome, HttpAnswer::Outcome::kAnswered) << answer.why;
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "hello");
  const std::string said = server.last_request();
  EXPECT_TRUE(said.starts_with("POST /a HTTP/1.1\r\n")) << said;
  EXPECT_NE(said.find("\r\nContent-Type: application/json\r\n"), std::string::npos) << said;
  EXPECT_NE(said.find("\r\nAuthorization: a.token\r\n"), std::string::npos) << said;
  EXPECT_TRUE(said.ends_with("\r\n\r\n{\"to\":\"END\"}")) << said;
  const HttpAnswer other = ask(request(server.url("/b")));
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.body, "no");
}

TEST_F(CurlClientTest, EndsAnAnswerThatIsTooLarge) {
  const std::string endless = "HTTP/1.1 200 OK\r\n\r\n" + std::string(100'000, 'x');
  Server server({{"/just", ok(std::string(1000, 'x'))}, {"/more", ok(std::string(1001, 'x'))}, {"/endless", endless}});
  EXPECT_EQ(ask(request(server.url("/just"))).body.size(), 1000u);
  for (const char* path : {"/more", "/endless"}) {
    const HttpAnswer answer = ask(request(server.url(path)));
    EXPECT_EQ(answer.outcome, HttpAnswer::Outcome::kUnreachable);
    EXPECT_EQ(answer.why, "its answer is larger than 1000 bytes");
  }
}

TEST_F(CurlClientTest, GivesUpAServerThatDoesNotAnswerInTimeAndOneThatIsNotThere) {
  std::string nowhere;
  {
    Server server({});
    nowhere = server.url("/");
    HttpRequest slow = request(server.url("/"));
    slow.timeout = 50 * kMillisecond;
    const HttpAnswer answer = ask(slow);
    EXPECT_EQ(answer.outcome, HttpAnswer::Outcome::kUnreachable);
    EXPECT_EQ(answer.why, "no answer in time");
  }
  const HttpAnswer answer = ask(request(nowhere));
  EXPECT_EQ(answer.outcome, HttpAnswer::Outcome::kUnreachable);
  EXPECT_NE(answer.why.find("Failed to connect"), std::string::npos) << answer.why;
}

TEST_F(CurlClientTest, TellsAConnectionThatIsCutAndAnswersThatAreNone) {
  Server server(
      {{"/cut", ""}, {"/garbage", "\xff\xfe garbage"}, {"/part", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"}});
  EXPECT_EQ(ask(request(server.url("/cut"))).outcome, HttpAnswer::Outcome::kCut);
  for (const char* path : {"/garbage", "/part"}) {
    const HttpAnswer answer = ask(request(server.url(path)));
    EXPECT_EQ(answer.outcome, HttpAnswer::Outcome::kUnreachable) << answer.body;
    EXPECT_NE(answer.why, "") << path;
  }
}

TEST_F(CurlClientTest, FollowsNoRedirectionAndNoProxy) {
  Server server({{"/a", "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n"}, {"/b", ok("there")}});
  setenv("http_proxy", "http://127.0.0.1:9", 1);
  EXPECT_EQ(ask(request(server.url("/a"))).status, 302);
  unsetenv("http_proxy");
  const HttpAnswer answer = ask(request("file:///etc/passwd"));
  EXPECT_EQ(answer.outcome, HttpAnswer::Outcome::kUnreachable);
  EXPECT_EQ(answer.body, "");
}

TEST_F(CurlClientTest, GivesEachLineOfAStreamAndItsEnd) {
  Server server({{"/a", "HTTP/1.1 200 OK\r\n\r\none\ntwo\n" + std::string(1000, 'x') + "\n" + std::string(1001, 'y')}});
  HttpRequest stream = request(server.url("/a"));
  stream.timeout = kNever;
  std::vector<std::string> lines;
  stream.read_line = [&lines](std::string_view line) -> Task {
    return [&lines, text = std::string(line)] { lines.push_back(text); };
  };
  const HttpAnswer end = ask(stream);
  EXPECT_EQ(end.outcome, HttpAnswer::Outcome::kUnreachable);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two", std::string(1000, 'x')}));
}

TEST_F(CurlClientTest, NothingIsReadOfWhatWasCancelled) {
  Server server({{"/b", ok("x")}});
  HttpRequest mute = request(server.url("/a"));
  bool is_read = false;
  mute.read = [&is_read](const HttpAnswer&) -> Task {
    is_read = true;
    return {};
  };
  on_loop([&] {
    const uint64_t id = client_->send(mute);
    EXPECT_NE(id, 0u);
    client_->cancel(id);
  });
  EXPECT_EQ(ask(request(server.url("/b"))).body, "x");
  loop_.stop();
  client_->stop(0);
  EXPECT_FALSE(is_read);
}

// A farewell.
TEST_F(CurlClientTest, ItsEndLetsWhatWasSentCome) {
  Server server({{"/a", ok("x")}});
  const auto read = Future<Unit>::make();
  HttpRequest one = request(server.url("/a"));
  one.read = [read](const HttpAnswer& answer) -> Task {
    if (answer.status == 200) read->complete(Unit{});
    return {};
  };
  on_loop([&] { client_->send(one); });
  loop_.stop();
  client_->stop(20 * kSecond);
  EXPECT_TRUE(read->is_done());
}

TEST_F(CurlClientTest, ItsEndWaitsNoLongerThanItIsTold) {
  Server server({});
  auto open = send(request(server.url("/a")));
  HttpRequest stream = request(server.url("/b"));
  stream.timeout = kNever;
  stream.read_line = [](std::string_view) { return Task(); };
  auto other = send(stream);
  loop_.stop();
  const Nanos begun = loop_.now();
  client_->stop(50 * kMillisecond);
  EXPECT_LT(loop_.now() - begun, 60 * kSecond);
  EXPECT_FALSE(open->is_done());
}

// All that is open is told, and what is asked from then on is answered.
TEST_F(CurlClientTest, GoesOnAfterAShortageOfMemory) {
  Server server({{"/a", ok("hello")}});
  for (int round = 0; round < 2; ++round) {
    const auto open = send(request(server.url("/mute")));
    HttpRequest greedy = request(server.url("/a"));
    greedy.read = [](const HttpAnswer&) -> Task { throw std::bad_alloc(); };
    on_loop([&] { client_->send(greedy); });
    ASSERT_TRUE(distag::wait(*open, 120 * kSecond));
    EXPECT_EQ(open->value().outcome, HttpAnswer::Outcome::kNoMemory);
    EXPECT_EQ(open->value().why, "out of memory");
    EXPECT_EQ(ask(request(server.url("/a"))).body, "hello");
  }
}

TEST_F(CurlClientTest, WithoutLibcurlEachAnswerNamesThePackage) {
  client_ =
      std::make_unique<CurlClient>(loop_, ThreadHooks{}, nullptr, std::vector<std::string>{"libcurl-of-nobody.so.4"});
  for (int round = 0; round < 2; ++round) {
    const HttpAnswer answer = ask(request("http://127.0.0.1:9/"));
    EXPECT_EQ(answer.outcome, HttpAnswer::Outcome::kUnsupported);
    EXPECT_NE(answer.why.find("install Debian's package libcurl4"), std::string::npos) << answer.why;
    EXPECT_NE(answer.why.find("libcurl-of-nobody.so.4"), std::string::npos) << answer.why;
  }
}

}  // namespace
}  // namespace distag
