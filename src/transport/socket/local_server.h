#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace distag {

class FdLoop;

// A socket at which processes of the same user on this machine ask a worker for its state: they send a line, and get a
// text and the end of the connection. It lies in a folder that only this user can enter, "distag-ps.UID" below
// XDG_RUNTIME_DIR, TMPDIR or /tmp, by the name "PROCESS.ID" with the id in 16 hexadecimal digits. The last worker to
// leave the folder removes it; a new worker removes sockets that dead processes left.
//
// The socket takes one descriptor, and one for each connection: at most 32 at once, none when descriptors are short;
// further guests wait. A guest that sends nothing, or too much, or does not read is hung up on after two seconds. A
// forked child has none of this. On the loop, or while the loop does not run.
class LocalServer {
 public:
  // Sends the text, once; on the loop. Does nothing when the guest or the server is gone.
  using Reply = std::function<void(std::string)>;
  using OnQuestion = std::function<void(const std::string& line, const Reply& reply)>;

  // Throws if it cannot listen: INVALID_STATE without a folder, OUT_OF_MEMORY if descriptors are short, DENIED.
  LocalServer(FdLoop& loop, uint64_t id, OnQuestion on_question);
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
