#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/loop.h"
#include "group/etcd_settings.h"
#include "group/http_client.h"

namespace distag {

// Sends requests to the servers of an etcd, as a user if there is one; when a server does not answer, the next is
// tried. On the loop.
class EtcdClient {
 public:
  struct Events {
    // A call has failed; it may be made again after the pause.
    std::function<void(Nanos pause, const Error& error)> on_failed;
    std::function<void(const Error& error)> on_refused;  // a call was refused and would be refused again
    std::function<void()> on_no_lease;                   // a call names a lease that has run out
    std::function<void()> on_news;                       // the watch has reported a change, or has ended
  };
  // Reads a body with status 200, off the loop, and returns the task that continues with it. Throws PROTOCOL for an
  // invalid body.
  using Read = std::function<Task(const std::string& body)>;

  // `first`: the index of the server that is asked first, so that clients spread over the servers.
  EtcdClient(EtcdSettings settings, Loop& loop, HttpClient& http, uint64_t first, Events events);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  const std::string& prefix() const { return settings_.prefix; }

  // Only one call at a time.
  void call(const std::string& path, std::string body, Read read);
  bool is_calling();
  // Watches at the current server. Only one watch at a time; it ends when the client moves to another server, or when
  // the revision is too old.
  void watch(std::string body);
  bool is_watching() const { return watch_ != 0; }
  void end_watch();
  // Sends a request whose answer is ignored.
  void say(const std::string& path, std::string body);
  // Ends the call and the watch; neither reports anything any more.
  void drop();

  bool has_failed() const { return failures_in_row_ != 0; }  // has the last call failed?
  std::string describe() const;                              // lists each server with its last failure

 private:
  enum class Kind { kPassing, kUntrusted, kGarbage, kNoToken, kNoLease, kRefused };
  struct Failure {
    Kind kind = Kind::kPassing;
    Error error;
  };
  struct Call {
    std::string path;
    std::string body;
    Read read;
  };

  static Failure failure_of(const HttpAnswer& answer, bool is_authenticating);
  HttpRequest request_for(const std::string& path, std::string body) const;
  void send();
  void authenticate();
  void post(HttpRequest request, bool is_authenticating, Read read);
  void on_answer();
  void on_failure(const Failure& failure);
  bool is_hopeless() const;

  const EtcdSettings settings_;
  Loop& loop_;
  HttpClient& http_;
  const Events events_;
  size_t server_;
  std::vector<std::optional<Failure>> failures_;  // the last failure of each server, until it answers
  size_t failures_in_row_ = 0;
  Nanos pause_ = 0;
  std::string token_;
  bool token_is_fresh_ = false;  // no request has used it so far
  Call call_;
  uint64_t request_ = 0;  // 0: no call
  Nanos overdue_ = 0;
  uint64_t watch_ = 0;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace distag
