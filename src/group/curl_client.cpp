#include "group/curl_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/mutex.h"
#include "base/reserve.h"
#include "base/shared_library.h"

namespace distag {
namespace {

constexpr Nanos kConnectTimeout = 2 * kSecond;
constexpr int kLongestPoll = 1000;  // milliseconds; a wake-up ends it
constexpr int kPollOfEnd = 20;

// The functions of libcurl for one request.
struct EasyCurl {
  explicit EasyCurl(const SharedLibrary& library) {
    library.find("curl_easy_init", init);
    library.find("curl_easy_setopt", setopt);
    library.find("curl_easy_getinfo", getinfo);
    library.find("curl_easy_strerror", strerror);
    library.find("curl_easy_cleanup", cleanup);
    library.find("curl_slist_append", slist_append);
    library.find("curl_slist_free_all", slist_free_all);
  }

  decltype(&curl_easy_init) init = nullptr;
  decltype(&curl_easy_setopt) setopt = nullptr;
  decltype(&curl_easy_getinfo) getinfo = nullptr;
  decltype(&curl_easy_strerror) strerror = nullptr;
  decltype(&curl_easy_cleanup) cleanup = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

// The functions of libcurl for all requests together.
struct MultiCurl {
  explicit MultiCurl(const SharedLibrary& library) {
    library.find("curl_multi_init", init);
    library.find("curl_multi_cleanup", cleanup);
    library.find("curl_multi_add_handle", add_handle);
    library.find("curl_multi_remove_handle", remove_handle);
    library.find("curl_multi_perform", perform);
    library.find("curl_multi_info_read", info_read);
    library.find("curl_multi_poll", poll);
    library.find("curl_multi_wakeup", wakeup);
  }

  decltype(&curl_multi_init) init = nullptr;
  decltype(&curl_multi_cleanup) cleanup = nullptr;
  decltype(&curl_multi_add_handle) add_handle = nullptr;
  decltype(&curl_multi_remove_handle) remove_handle = nullptr;
  decltype(&curl_multi_perform) perform = nullptr;
  decltype(&curl_multi_info_read) info_read = nullptr;
  decltype(&curl_multi_poll) poll = nullptr;
  decltype(&curl_multi_wakeup) wakeup = nullptr;
};

// Libcurl, loaded into this process and started.
class Curl {
 public:
  explicit Curl(const std::vector<std::string>& names) : library(names), easy(library), multi(library) {
    decltype(&curl_global_init) start = nullptr;
    library.find("curl_global_init", start);
    library.find("curl_global_cleanup", global_cleanup_);
    const CURLcode code = start(CURL_GLOBAL_DEFAULT);
    if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
    if (code != CURLE_OK) fail(Status::kInternal, "libcurl does not start");
  }
  ~Curl() { global_cleanup_(); }
  Curl(const Curl&) = delete;
  Curl& operator=(const Curl&) = delete;

  const SharedLibrary library;
  const EasyCurl easy;
  const MultiCurl multi;

 private:
  decltype(&curl_global_cleanup) global_cleanup_ = nullptr;
};

// An answer for a request that failed with `error`.
HttpAnswer no_answer(const Error& error) {
  HttpAnswer answer;
  if (error.status() == Status::kOutOfMemory) answer.outcome = HttpAnswer::Outcome::kNoMemory;
  answer.why = error.message();
  return answer;
}

void post(Loop& loop, Task task) {
  if (task) loop.post_or_drop(std::move(task));
}

long milliseconds(Nanos time) { return std::max<long>(1, time / kMillisecond); }

// A request under way. Used on the client's thread.
class Transfer {
 public:
  Transfer(const Curl& curl, Loop& loop, HttpRequest given)
      : request(std::move(given)), curl_(curl), loop_(loop), easy_(curl.easy.init()) {
    if (easy_ == nullptr) throw std::bad_alloc();
    set_up();
  }
  ~Transfer() {
    curl_.easy.cleanup(easy_);
    curl_.easy.slist_free_all(headers_);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  CURL* easy() const { return easy_; }

  HttpAnswer answer_for(CURLcode code) {
    HttpAnswer answer;
    if (code == CURLE_OK) {
      long status = 0;
      curl_.easy.getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
      answer.outcome = HttpAnswer::Outcome::kAnswered;
      answer.status = static_cast<int>(status);
      answer.body = std::move(body_);
      return answer;
    }
    answer.outcome = outcome_of(code);
    answer.why = describe(code);
    return answer;
  }

  const HttpRequest request;

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_.easy.setopt(easy_, option, value);
    if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
    if (code != CURLE_OK) fail(Status::kUnsupported, "libcurl: {}", curl_.easy.strerror(code));
  }

  void add_header(const std::string& line) {
    curl_slist* const longer = curl_.easy.slist_append(headers_, line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    headers_ = longer;
  }

  void set_up() {
    set(CURLOPT_ERRORBUFFER, reason_.data());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_PROXY, "");
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(std::min(request.timeout, kConnectTimeout)));
    if (request.timeout != kNever) set(CURLOPT_TIMEOUT_MS, milliseconds(request.timeout));
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.data());
    add_header("Content-Type: application/json");
    add_header("Expect:");
    if (!request.token.empty()) add_header("Authorization: " + request.token);
    set(CURLOPT_HTTPHEADER, headers_);
    if (!request.tls.authorities.empty()) {
      set(CURLOPT_CAINFO, request.tls.authorities.c_str());
      set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
    }
    if (!request.tls.certificate.empty()) set(CURLOPT_SSLCERT, request.tls.certificate.c_str());
    if (!request.tls.key.empty()) set(CURLOPT_SSLKEY, request.tls.key.c_str());
    set(CURLOPT_WRITEDATA, static_cast<void*>(this));
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
  }

  // Called by libcurl; a result other than `count` ends the transfer.
  static size_t on_bytes(char* bytes, size_t, size_t count, void* transfer) noexcept {
    try {
      return static_cast<Transfer*>(transfer)->take({bytes, count}) ? count : 0;
    } catch (...) {
      return 0;  // no memory: the transfer ends
    }
  }

  bool take(std::string_view bytes) {
    body_.append(bytes);
    if (request.read_line) {
      size_t begin = 0;
      for (size_t end = 0; (end = body_.find('\n', begin)) != std::string::npos; begin = end + 1) {
        post(loop_, request.read_line(std::string_view(body_).substr(begin, end - begin)));
      }
      body_.erase(0, begin);
    }
    is_too_large_ = body_.size() > request.most_bytes;
    return !is_too_large_;
  }

  static HttpAnswer::Outcome outcome_of(CURLcode code) {
    switch (code) {
      case CURLE_OUT_OF_MEMORY:
        return HttpAnswer::Outcome::kNoMemory;
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CONNECT_ERROR:
      case CURLE_SSL_CACERT_BADFILE:
      case CURLE_SSL_CERTPROBLEM:
      case CURLE_SSL_ISSUER_ERROR:
        return HttpAnswer::Outcome::kUntrusted;
      case CURLE_GOT_NOTHING:
      case CURLE_SEND_ERROR:
      case CURLE_RECV_ERROR:
        return HttpAnswer::Outcome::kCut;
      default:
        return HttpAnswer::Outcome::kUnreachable;
    }
  }

  std::string describe(CURLcode code) const {
    if (is_too_large_) return fmt::format("its answer is larger than {} bytes", request.most_bytes);
    if (code == CURLE_OPERATION_TIMEDOUT) return "no answer in time";
    if (reason_.front() != '\0') return reason_.data();
    return curl_.easy.strerror(code);
  }

  const Curl& curl_;
  Loop& loop_;
  CURL* const easy_;
  curl_slist* headers_ = nullptr;
  std::array<char, CURL_ERROR_SIZE> reason_{};
  std::string body_;
  bool is_too_large_ = false;
};

// All requests under way. Used on the client's thread.
class Transfers {
 public:
  Transfers(const Curl& curl, Loop& loop) : curl_(curl), loop_(loop), multi_(curl.multi.init()) {
    if (multi_ == nullptr) throw std::bad_alloc();
  }
  ~Transfers() {
    while (!open_.empty()) end(open_.begin()->first);
    curl_.multi.cleanup(multi_);
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  CURLM* multi() const { return multi_; }

  void begin(uint64_t id, HttpRequest request) {
    const auto read = request.read;
    try {
      auto transfer = std::make_unique<Transfer>(curl_, loop_, std::move(request));
      if (curl_.multi.add_handle(multi_, transfer->easy()) != CURLM_OK) throw std::bad_alloc();
      open_[id] = std::move(transfer);
    } catch (...) {
      post(loop_, read(no_answer(current_error())));
    }
  }

  void end(uint64_t id) {
    const auto found = open_.find(id);
    if (found == open_.end()) return;
    curl_.multi.remove_handle(multi_, found->second->easy());
    open_.erase(found);
  }

  // Moves bytes, and passes on the answers that are complete.
  void move() {
    int running = 0;
    curl_.multi.perform(multi_, &running);
    int more = 0;
    while (const CURLMsg* message = curl_.multi.info_read(multi_, &more)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      const auto found = std::find_if(open_.begin(), open_.end(), [message](const auto& entry) {
        return entry.second->easy() == message->easy_handle;
      });
      const uint64_t id = found->first;
      post(loop_, found->second->request.read(found->second->answer_for(code)));
      end(id);
    }
  }

  // Ends all requests with an error.
  void refuse(const Error& error) {
    const HttpAnswer answer = no_answer(error);
    while (!open_.empty()) {
      const auto read = open_.begin()->second->request.read;
      end(open_.begin()->first);
      post(loop_, read(answer));
    }
  }

  // Whether any request other than a stream is under way.
  bool has_requests() const {
    return std::any_of(open_.begin(), open_.end(), [](const auto& entry) { return !entry.second->request.read_line; });
  }

  void wait(int longest) { curl_.multi.poll(multi_, nullptr, 0, longest, nullptr); }

 private:
  const Curl& curl_;
  Loop& loop_;
  CURLM* const multi_;
  std::map<uint64_t, std::unique_ptr<Transfer>> open_;
};

}  // namespace

struct CurlClient::State {
  State(Loop& given_loop, ThreadHooks given_hooks, std::shared_ptr<Reserve> given_reserve,
        std::vector<std::string> given_names)
      : loop(given_loop),
        hooks(std::move(given_hooks)),
        reserve(std::move(given_reserve)),
        names(std::move(given_names)) {}

  // Starts a request or, if it is empty, cancels the request of this number.
  struct Command {
    uint64_t id;
    std::optional<HttpRequest> request;
  };

  // Lets other threads wake the client's thread as long as it lives.
  class WayToWake {
   public:
    WayToWake(State& state, std::function<void()> wake) : state_(state) {
      MutexLock lock(state_.mutex);
      state_.wake = std::move(wake);
    }
    ~WayToWake() {
      MutexLock lock(state_.mutex);
      state_.wake = nullptr;
    }
    WayToWake(const WayToWake&) = delete;
    WayToWake& operator=(const WayToWake&) = delete;

   private:
    State& state_;
  };

  void join_failed_thread();
  void give(Command command);
  void run();
  void serve(const Curl& curl);
  bool take_commands(Transfers& transfers);
  void give_up(const Error& error, Transfers* transfers);
  void refuse_all(const Error& error);

  Loop& loop;
  const ThreadHooks hooks;
  const std::shared_ptr<Reserve> reserve;  // used by the thread; nullptr: none
  const std::vector<std::string> names;
  uint64_t next_id = 1;
  std::thread thread;

  Mutex mutex;
  std::deque<Command> commands GUARDED_BY(mutex);
  std::function<void()> wake GUARDED_BY(mutex);
  std::optional<HttpAnswer> refusal GUARDED_BY(mutex);  // answer to all requests since the thread has ended
  std::optional<Nanos> end GUARDED_BY(mutex);           // the time by which the thread ends
};

std::vector<std::string> CurlClient::libraries() { return {"libcurl.so.4", "libcurl-gnutls.so.4"}; }

CurlClient::CurlClient(Loop& loop, ThreadHooks hooks, std::shared_ptr<Reserve> reserve, std::vector<std::string> names)
    : state_(std::make_unique<State>(loop, std::move(hooks), std::move(reserve), std::move(names))) {}

CurlClient::~CurlClient() { stop(0); }

uint64_t CurlClient::send(HttpRequest request) {
  assert_on_loop(state_->loop);
  state_->join_failed_thread();
  const uint64_t id = state_->next_id++;
  state_->give({id, std::move(request)});
  if (!state_->thread.joinable()) {
    state_->thread = start_thread("distag-http", state_->hooks, [state = state_.get()] { state->run(); });
  }
  return id;
}

void CurlClient::cancel(uint64_t id) {
  assert_on_loop(state_->loop);
  state_->give({id, std::nullopt});
}

void CurlClient::stop(Nanos patience) {
  if (!state_->thread.joinable()) return;
  {
    MutexLock lock(state_->mutex);
    state_->end = deadline_after(state_->loop.now(), patience);
    if (state_->wake) state_->wake();
  }
  state_->thread.join();
}

// A thread that ended for lack of a resource is replaced; a machine without libcurl keeps the refusal.
void CurlClient::State::join_failed_thread() {
  {
    MutexLock lock(mutex);
    if (!refusal || refusal->outcome == HttpAnswer::Outcome::kUnsupported) return;
  }
  thread.join();
  MutexLock lock(mutex);
  refusal.reset();
}

void CurlClient::State::give(Command command) {
  MutexLock lock(mutex);
  if (!refusal) {
    commands.push_back(std::move(command));
    if (wake) wake();
  } else if (command.request) {
    const HttpAnswer answer = *refusal;
    lock.unlock();
    post(loop, command.request->read(answer));
  }
}

void CurlClient::State::run() {
  const ReserveScope scope(reserve.get());
  try {
    const Curl curl(names);
    serve(curl);
  } catch (...) {
    give_up(current_error(), nullptr);
  }
}

void CurlClient::State::serve(const Curl& curl) {
  Transfers transfers(curl, loop);
  const WayToWake way(*this, [&curl, multi = transfers.multi()] { curl.multi.wakeup(multi); });
  try {
    while (take_commands(transfers)) {
      transfers.move();
      int longest = kLongestPoll;
      {
        MutexLock lock(mutex);
        if (end) longest = kPollOfEnd;
      }
      transfers.wait(longest);
    }
  } catch (...) {
    give_up(current_error(), &transfers);
  }
}

// The last action of the thread.
void CurlClient::State::give_up(const Error& error, Transfers* transfers) {
  try {
    refuse_all(error);
    if (transfers != nullptr) transfers->refuse(error);
  } catch (...) {
    // There is no memory for the answers either: these requests get none, but their callers have timeouts.
    MutexLock lock(mutex);
    if (!refusal) refusal.emplace().outcome = HttpAnswer::Outcome::kNoMemory;
    commands.clear();
  }
}

// Returns false when it is time to end.
bool CurlClient::State::take_commands(Transfers& transfers) {
  std::deque<Command> taken;
  std::optional<Nanos> until;
  {
    MutexLock lock(mutex);
    taken.swap(commands);
    until = end;
  }
  for (Command& command : taken) {
    if (command.request) {
      transfers.begin(command.id, std::move(*command.request));
    } else {
      transfers.end(command.id);
    }
  }
  return !until || (transfers.has_requests() && loop.now() < *until);
}

void CurlClient::State::refuse_all(const Error& error) {
  HttpAnswer answer = no_answer(error);
  if (error.status() == Status::kUnsupported) {
    answer.outcome = HttpAnswer::Outcome::kUnsupported;
    answer.why = fmt::format("this machine lacks libcurl, install Debian's package libcurl4 ({})", error.message());
  }
  std::deque<Command> taken;
  {
    MutexLock lock(mutex);
    refusal = answer;
    taken.swap(commands);
  }
  for (const Command& command : taken) {
    if (command.request) post(loop, command.request->read(answer));
  }
}

}  // namespace distag
