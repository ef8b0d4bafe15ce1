#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/thread.h"
#include "group/http_client.h"

namespace distag {

class Reserve;

// HTTP by libcurl. The first request loads libcurl and starts a thread; without libcurl each answer is UNSUPPORTED.
// When memory is short the thread answers all requests with that error and ends, and the next request starts another
// thread. Proxies, .netrc and redirections are not used. On the loop.
class CurlClient final : public HttpClient {
 public:
  static std::vector<std::string> libraries();  // names of libcurl, the preferred first

  // The thread allocates from the reserve when memory is short.
  CurlClient(Loop& loop, ThreadHooks hooks, std::shared_ptr<Reserve> reserve = nullptr,
             std::vector<std::string> names = libraries());
  ~CurlClient() override;  // stops at once

  uint64_t send(HttpRequest request) override;
  void cancel(uint64_t id) override;

  // Lets the sent requests, except streams, finish for up to `patience`; then ends and joins the thread. Any thread but
  // that one, once the loop has stopped.
  void stop(Nanos patience);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace distag
