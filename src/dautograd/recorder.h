#pragma once

#include <string>
#include <vector>

#include "dautograd/context_table.h"

namespace distag {

// Notes what calls and answers carry out of and into this worker: the send and recv nodes of its contexts. On the loop.
class Recorder {
 public:
  Recorder(DautogradShared& shared, ContextTable& contexts) : shared_(shared), contexts_(contexts) {}

  wire::AutogradMetadata on_send(const Id& context, const Peer& to, const std::vector<const Value*>& values,
                                 const std::string& call, bool is_answer);
  void on_receive(const wire::AutogradMetadata& metadata, const Peer& from, const std::vector<const Value*>& values,
                  const std::string& call, bool is_answer);
  // The message is not taken, but what it says about the context still holds.
  void on_thrown_away(const wire::AutogradMetadata& metadata, const Peer& from);

 private:
  void keep_told(DistributedContext& context, const wire::AutogradMetadata& metadata, const Peer& from);

  DautogradShared& shared_;
  ContextTable& contexts_;
};

}  // namespace distag
