#include "group/etcd_client.h"

#include <algorithm>
#include <utility>

#include "group/etcd_messages.h"

namespace distag {
namespace {

// Three servers may fail to answer before a lease runs out. Each round in which none has answered doubles the timeout,
// for slow servers.
constexpr Nanos kAnswerTimeout = kSecond;
constexpr size_t kMostDoublings = 2;
constexpr Nanos kFarewellTimeout = kSecond;
constexpr Nanos kFirstRetry = 50 * kMillisecond;
constexpr Nanos kLongestRetry = kSecond;
constexpr size_t kMostBytes = size_t{16} << 20;       // limit of an answer: a record of 1.5 MiB and 65536 members fit
constexpr size_t kMostBytesOfLine = size_t{8} << 20;  // limit of a watch's line: all events of one revision

// gRPC codes.
constexpr int kInvalidArgument = 3;
constexpr int kNotFound = 5;
constexpr int kPermissionDenied = 7;
constexpr int kFailedPrecondition = 9;
constexpr int kUnauthenticated = 16;

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

EtcdClient::EtcdClient(EtcdSettings settings, Loop& loop, HttpClient& http, uint64_t first, Events events)
    : settings_(std::move(settings)),
      loop_(loop),
      http_(http),
      events_(std::move(events)),
      server_(first % settings_.endpoints.size()),
      failures_(settings_.endpoints.size()) {}

EtcdClient::~EtcdClient() { drop(); }

HttpRequest EtcdClient::request_for(const std::string& path, std::string body) const {
  HttpRequest request;
  request.url = settings_.endpoints[server_] + path;
  request.body = std::move(body);
  request.token = token_;
  request.tls = settings_.tls;
  request.timeout = kAnswerTimeout << std::min(failures_in_row_ / settings_.endpoints.size(), kMostDoublings);
  request.most_bytes = kMostBytes;
  return request;
}

bool EtcdClient::is_calling() {
  assert_on_loop(loop_);
  if (request_ != 0 && loop_.now() >= overdue_) http_.cancel(std::exchange(request_, 0));
  return request_ != 0;
}

void EtcdClient::call(const std::string& path, std::string body, Read read) {
  assert_on_loop(loop_);
  call_ = {path, std::move(body), std::move(read)};
  send();
}

void EtcdClient::send() {
  if (!settings_.user.empty() && token_.empty()) return authenticate();
  post(request_for(call_.path, call_.body), false, call_.read);
}

void EtcdClient::authenticate() {
  HttpRequest request = request_for("/v3/auth/authenticate", etcd::authenticate(settings_.user, settings_.password));
  post(std::move(request), true, [this](const std::string& body) -> Task {
    return [this, token = etcd::read_token(body)] {
      token_ = token;
      token_is_fresh_ = true;
      send();
    };
  });
}

// The answer is read off the loop; only the resulting task uses this object.
void EtcdClient::post(HttpRequest request, bool is_authenticating, Read read) {
  auto own = std::make_shared<uint64_t>(0);
  request.read = [this, alive = std::weak_ptr<char>(alive_), own, is_authenticating,
                  read = std::move(read)](const HttpAnswer& answer) -> Task {
    Failure failure;
    Task next;
    try {
      if (answer.outcome != HttpAnswer::Outcome::kAnswered || answer.status != 200) {
        failure = failure_of(answer, is_authenticating);
      } else {
        next = read(answer.body);
      }
    } catch (...) {
      failure = {Kind::kGarbage, current_error()};
      if (failure.error.status() == Status::kOutOfMemory) failure.kind = Kind::kPassing;
    }
    return [this, alive, own, failure = std::move(failure), next = std::move(next)]() mutable {
      if (alive.expired() || request_ != *own) return;
      request_ = 0;
      if (!next) return on_failure(failure);
      on_answer();
      next();
    };
  };
  overdue_ = deadline_after(loop_.now(), 2 * request.timeout);
  *own = request_ = http_.send(std::move(request));
}

void EtcdClient::on_answer() {
  token_is_fresh_ = false;
  failures_in_row_ = 0;
  pause_ = 0;
  failures_[server_].reset();
}

EtcdClient::Failure EtcdClient::failure_of(const HttpAnswer& answer, bool is_authenticating) {
  if (answer.outcome == HttpAnswer::Outcome::kUnsupported) return {Kind::kRefused, {Status::kUnsupported, answer.why}};
  if (answer.outcome == HttpAnswer::Outcome::kUntrusted) return {Kind::kUntrusted, {Status::kDenied, answer.why}};
  if (answer.outcome == HttpAnswer::Outcome::kCut) {
    return {Kind::kPassing,
            {Status::kDisconnected,
             answer.why + " (should it ask for TLS, or for a certificate of this side that it believes, name them by "
                          "DISTAG_ETCD_CACERT, DISTAG_ETCD_CERT and DISTAG_ETCD_KEY)"}};
  }
  if (answer.outcome == HttpAnswer::Outcome::kNoMemory) return {Kind::kPassing, {Status::kOutOfMemory, answer.why}};
  if (answer.outcome == HttpAnswer::Outcome::kUnreachable) {
    return {Kind::kPassing, {Status::kDisconnected, answer.why}};
  }
  const etcd::Refusal refusal = etcd::read_refusal(answer.body);
  const std::string& text = refusal.text;
  if (text.empty()) {
    return {answer.status >= 500 ? Kind::kPassing : Kind::kGarbage,
            {Status::kProtocol, fmt::format("its answer is not one of etcd v3 (HTTP status {})", answer.status)}};
  }
  if (refusal.code == kNotFound && has(text, "lease")) return {Kind::kNoLease, {Status::kInvalidState, text}};
  const bool is_about_password = refusal.code == kInvalidArgument || refusal.code == kFailedPrecondition;
  if (is_authenticating && is_about_password) return {Kind::kRefused, {Status::kDenied, text}};
  if (refusal.code == kUnauthenticated) return {Kind::kNoToken, {Status::kDenied, text}};
  if (refusal.code == kPermissionDenied) return {Kind::kRefused, {Status::kDenied, text}};
  if (has(text, "user name is empty")) {
    return {Kind::kRefused,
            {Status::kDenied, text + ": etcd asks for a user, set DISTAG_ETCD_USER and DISTAG_ETCD_PASSWORD_FILE"}};
  }
  if (has(text, "request is too large")) {
    return {Kind::kRefused,
            {Status::kOverloaded, text + ": the group has too many members for one key; raise --max-request-bytes"}};
  }
  return {Kind::kPassing, {Status::kDisconnected, text}};
}

void EtcdClient::on_failure(const Failure& failure) {
  if (failure.kind == Kind::kNoLease) {
    on_answer();
    return events_.on_no_lease();
  }
  if (failure.kind == Kind::kNoToken && !token_is_fresh_ && !token_.empty()) {
    token_.clear();
    return send();
  }
  failures_[server_] = failure;
  if (failure.kind == Kind::kRefused || failure.kind == Kind::kNoToken || is_hopeless()) {
    token_.clear();
    const Error& error = failure.error;
    return events_.on_refused(
        Error(error.status(), fmt::format("{}: {}", settings_.endpoints[server_], error.message())));
  }
  server_ = (server_ + 1) % settings_.endpoints.size();
  end_watch();
  token_.clear();
  Nanos pause = 0;
  if (++failures_in_row_ % settings_.endpoints.size() == 0) {
    pause = pause_ = std::clamp(2 * pause_, kFirstRetry, kLongestRetry);
  }
  events_.on_failed(pause, failure.error);
}

// True if each server fails in a way that will not pass.
bool EtcdClient::is_hopeless() const {
  return std::all_of(failures_.begin(), failures_.end(), [](const std::optional<Failure>& failure) {
    return failure && (failure->kind == Kind::kUntrusted || failure->kind == Kind::kGarbage);
  });
}

void EtcdClient::watch(std::string body) {
  assert_on_loop(loop_);
  auto own = std::make_shared<uint64_t>(0);
  const auto tell = [this, alive = std::weak_ptr<char>(alive_), own](bool is_end) -> Task {
    return [this, alive, own, is_end] {
      if (alive.expired() || watch_ == 0 || watch_ != *own) return;
      if (is_end) end_watch();
      events_.on_news();
    };
  };
  HttpRequest request = request_for("/v3/watch", std::move(body));
  request.timeout = kNever;
  request.most_bytes = kMostBytesOfLine;
  request.read = [tell](const HttpAnswer&) { return tell(true); };
  request.read_line = [tell](std::string_view line) {
    const etcd::News news = etcd::read_news(line);
    return news == etcd::News::kNone ? Task() : tell(news == etcd::News::kEnd);
  };
  *own = watch_ = http_.send(std::move(request));
}

void EtcdClient::end_watch() {
  assert_on_loop(loop_);
  if (watch_ != 0) http_.cancel(std::exchange(watch_, 0));
}

void EtcdClient::say(const std::string& path, std::string body) {
  assert_on_loop(loop_);
  HttpRequest request = request_for(path, std::move(body));
  request.timeout = kFarewellTimeout;
  request.read = [](const HttpAnswer&) { return Task(); };
  http_.send(std::move(request));
}

void EtcdClient::drop() {
  assert_on_loop(loop_);
  if (request_ != 0) http_.cancel(std::exchange(request_, 0));
  end_watch();
}

std::string EtcdClient::describe() const {
  assert_on_loop(loop_);
  std::string text;
  for (size_t i = 0; i < failures_.size(); ++i) {
    text += fmt::format("{}{}: {}", i == 0 ? "" : "; ", settings_.endpoints[i],
                        failures_[i] ? failures_[i]->error.message() : std::string("no failure so far"));
  }
  return text;
}

}  // namespace distag
