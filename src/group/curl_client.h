#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/thread.h"
#include "group/http_client.h"

namespace distag {

class Reserve;

// HTTP by libcurl, which is loaded with the first request, on a thread that starts with it: where libcurl is not there,
// each answer is UNSUPPORTED. Where memory is short the thread answers all with that and ends, and the next request
// starts another one. Proxies, .netrc and redirections are not for it. On the loop.
class CurlClient final : public HttpClient {
 public:
  static std::vector<std::string> libraries();  // names of libcurl, the best one first

  // The thread falls back on the reserve.
  CurlClient(Loop& loop, ThreadHooks hooks, std::shared_ptr<Reserve> reserve = nullptr,
             std::vector<std::string> names = libraries());
  ~CurlClient() override;  // stops at once

  uint64_t send(HttpRequest request) override;
  void cancel(uint64_t id) override;

  // Lets what was sent come to its end, streams aside, for so long; then ends and joins the thread. Any thread but that
  // one, once the loop has stopped.
  void stop(Nanos patience);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace distag
