#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace distag {

class FdLoop;

// A socket at which processes of the same user on this machine ask a worker how it is: they send a line, and get a text
// and the end of the connection. It lies in a folder that only this user can enter, "distag-ps.UID" below
// XDG_RUNTIME_DIR, TMPDIR or /tmp, by the name "PROCESS.ID" with the id in 16 hexadecimal digits. The worker that is
// last to leave the folder removes it; sockets that dead processes left are removed by the next one that comes.
//
// It takes one descriptor, and one for each connection: of these at most 32 at once, and none where descriptors are
// short; the next ones wait. A guest that says nothing, too much, or does not read is hung up on after two seconds. A
// forked child has none of it. On the loop, or while that does not run.
class LocalServer {
 public:
  // Sends the text, once; on the loop. Nothing when the guest or the server is gone.
  using Reply = std::function<void(std::string)>;
  using OnQuestion = std::function<void(const std::string& line, const Reply& reply)>;

  // Throws why it cannot listen: INVALID_STATE without a folder, OUT_OF_MEMORY where descriptors are short, DENIED.
  LocalServer(FdLoop& loop, uint64_t id, OnQuestion on_question);
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
