#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd_loop.h"
#include "transport/security.h"
#include "transport/socket/address.h"
#include "transport/zmtp/zmtp_reader.h"

namespace distag {

// Finds out why a dial failed, for an engine that was not told: a plain connection goes through the handshake up to the
// point where both sides know whether their keys fit. It shows no key of this worker. On the loop. `done` runs later,
// once, unless the probe is destroyed before.
class Probe {
 public:
  struct Answer {
    bool is_refused = false;                   // the system says that no process listens there
    bool is_denied = false;                    // the handshake says that the sides do not agree on keys
    std::string found;                         // for a text; empty: nothing is known, or the keys fit
    std::optional<Error> lack = std::nullopt;  // of this machine: then nothing was found out
  };

  // `server`: the expected key; none: the mechanism NULL.
  Probe(FdLoop& loop, const SocketAddress& address, const std::optional<CurveKey>& server,
        std::function<void(Answer answer)> done);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

 private:
  void dial();
  void hang_up();
  void on_ready();
  void on_connected(int error);
  void on_readable();
  void listen();
  void say(size_t end);
  void hear(size_t count);
  void on_hang_up();
  void limit(Nanos most, const char* found);
  void finish(Answer answer);

  FdLoop& loop_;
  const SocketAddress address_;
  const std::optional<SocketKeys> keys_;
  std::function<void(Answer answer)> done_;
  // State of one connection.
  std::optional<ZmtpReader> reader_;
  std::vector<std::byte> words_;  // greeting and first command
  size_t said_ = 0;               // sent bytes of words_
  int fd_ = -1;
  Loop::TimerId timer_ = 0;
  bool is_connected_ = false;

  int refused_hellos_ = 0;
};

}  // namespace distag
