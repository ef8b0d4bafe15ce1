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

// Asks the servers of an etcd, one after the other when one does not answer, as a user if there is one. On the loop.
class EtcdClient {
 public:
  struct Events {
    // A call: it may be made again after the pause.
    std::function<void(Nanos pause, const Error& error)> on_failed;
    std::function<void(const Error& error)> on_refused;  // a call: another one would fare no better
    std::function<void()> on_no_lease;                   // a call names a lease that has run out
    std::function<void()> on_news;                       // the watch, or its end
  };
  // Of a body with status 200, beside the loop: gives the task that goes on with it. Throws PROTOCOL for one that is
  // none.
  using Read = std::function<Task(const std::string& body)>;

  // `first`: the place of the server that is asked first, so that not all ask the same.
  EtcdClient(EtcdSettings settings, Loop& loop, HttpClient& http, uint64_t first, Events events);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  const std::string& prefix() const { return settings_.prefix; }

  // One at a time.
  void call(const std::string& path, std::string body, Read read);
  bool is_calling();
  // At the server that is asked now. One at a time; it ends with the server, or when the
  // revision is too old.
  void watch(std::string body);
  bool is_watching() const { return watch_ != 0; }
  void end_watch();
  // Sends without waiting for an answer.
  void say(const std::string& path, std::string body);
  // Of the call and the watch nothing is heard any more.
  void drop();

  bool has_failed() const { return failures_in_row_ != 0; }  // the last call
  std::string describe() const;                              // each server with its last failure

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
  std::vector<std::optional<Failure>> failures_;  // the last one of each server, until it answers
  size_t failures_in_row_ = 0;
  Nanos pause_ = 0;
  std::string token_;
  bool token_is_fresh_ = false;  // nothing was asked with it so far
  Call call_;
  uint64_t request_ = 0;  // 0: no call
  Nanos overdue_ = 0;
  uint64_t watch_ = 0;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace distag
