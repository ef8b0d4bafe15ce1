#include "dautograd/fast_way.h"

#include <utility>

namespace distag {

using autograd::GraphTask;

void FastWay::begin(std::vector<autograd::Edge> roots, Reached, Entries) {
  assert_on_loop(part_.shared.environment.loop);
  part_.reach.add_all(all_sends(part_.context));
  std::vector<std::shared_ptr<SendNode>> sends;
  sends.reserve(part_.reach.sends().size());
  for (const auto& [pair, send] : part_.reach.sends()) {
    sends.push_back(send);
    if (const Error* gone = part_.shared.session->gone(send->info().peer)) {
      Error error = *gone;
      part_.state.fail(part_.shared.sign(std::move(error.add_context(send->name()))));
      return;
    }
  }
  part_.graph.work(std::nullopt, [roots = std::move(roots), sends = std::move(sends)](GraphTask& task) {
    task.walk().expand(roots);
    for (const auto& send : sends) task.walk().add_source(send, autograd::Bits(send->slots(), true));
  });
}

Error FastWay::unreached(const SendNode& recorded) const {
  return Error(Status::kInvalidState,
               fmt::format("{} were recorded while a FAST pass ran; wait for calls before the pass", recorded.name()));
}

}  // namespace distag
