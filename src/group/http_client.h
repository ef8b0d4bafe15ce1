#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/task.h"

namespace distag {

// PEM files. Empty: none.
struct TlsFiles {
  std::string authorities;  // the certificates that are trusted
  std::string certificate;  // certificate of this side, which belongs to `key`
  std::string key;
};

struct HttpAnswer {
  enum class Outcome {
    kAnswered,
    kUnreachable,  // also: no answer in time, or one larger than allowed
    kCut,          // the other side ended the connection
    kUntrusted,    // the certificate of the server is not trusted
    kNoMemory,     // no memory for the request or its answer
    kUnsupported,  // this machine lacks the libraries
  };
  Outcome outcome = Outcome::kUnreachable;
  int status = 0;    // HTTP status
  std::string body;  // empty for a stream
  std::string why;   // the reason if there is no answer
};

// A POST request with JSON.
struct HttpRequest {
  std::string url;  // http:// or https://
  std::string body;
  std::string token;  // value of "Authorization"; empty: none
  TlsFiles tls;
  Nanos timeout = kNever;  // for the whole request; a stream lasts until it is cancelled
  size_t most_bytes = 0;   // limit of the answer, or of a line of a stream
  // Both run on a thread of the client (or within send(), if all requests are refused), and return the task that
  // continues on the loop. `read` runs once. `read_line`, if set, runs for each line of the answer, which then goes on
  // until either side ends it.
  std::function<Task(const HttpAnswer&)> read;
  std::function<Task(std::string_view)> read_line;
};

// HTTP requests that run beside a loop. All methods on that loop.
class HttpClient {
 public:
  virtual ~HttpClient() = default;

  // Returns a number for cancel(), never 0.
  virtual uint64_t send(HttpRequest request) = 0;
  // Nothing more is read for the request. A task that was posted before may still run.
  virtual void cancel(uint64_t id) = 0;
};

}  // namespace distag
