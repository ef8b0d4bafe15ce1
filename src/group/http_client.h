#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/task.h"

namespace distag {

// Files in PEM. Empty: none.
struct TlsFiles {
  std::string authorities;  // whose certificates are believed
  std::string certificate;  // of this side, with its key
  std::string key;
};

struct HttpAnswer {
  enum class Outcome {
    kAnswered,
    kUnreachable,  // or it did not answer in time, or with more bytes than are wanted
    kCut,          // there was a connection, which the other side ended
    kUntrusted,    // its certificate does not fit
    kNoMemory,     // for the request or its answer
    kUnsupported,  // this machine lacks the means
  };
  Outcome outcome = Outcome::kUnreachable;
  int status = 0;    // of HTTP
  std::string body;  // nothing of a stream
  std::string why;   // when there is no answer
};

// A POST with JSON.
struct HttpRequest {
  std::string url;  // http:// or https://
  std::string body;
  std::string token;  // nullable: "Authorization"
  TlsFiles tls;
  Nanos timeout = kNever;  // for all of it; a stream has until it is cancelled
  size_t most_bytes = 0;   // of the answer, or of a line of a stream
  // Both run on a thread of the client (or within send(), where all is refused), and give the task that goes on with it
  // on the loop. `read` once; `read_line`, if it is given, for each line of the answer, which then goes on until either
  // side ends it.
  std::function<Task(const HttpAnswer&)> read;
  std::function<Task(std::string_view)> read_line;
};

// Speaks HTTP beside a loop. On that loop.
class HttpClient {
 public:
  virtual ~HttpClient() = default;

  // Gives a number for cancel(), never 0.
  virtual uint64_t send(HttpRequest request) = 0;
  // Nothing is read of it any more. A task that was posted before may still come.
  virtual void cancel(uint64_t id) = 0;
};

}  // namespace distag
