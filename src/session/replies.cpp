#include "session/replies.h"

#include <utility>

#include "base/each_step.h"

namespace distag {

void Replies::listen(const std::string& address, AcceptorEvents events) {
  assert_on_loop(shared_.loop);
  acceptor_ = shared_.transport.listen(address, std::move(events));
  shared_.config.self.endpoint = acceptor_->endpoint();
  keep_words_ready();
}

void Replies::keep_words_ready() noexcept {
  assert_on_loop(shared_.loop);
  EachStep each;
  for (Frames& word : again_words_) {
    if (!word.empty()) continue;
    each([this, &word] {
      wire::Refuse again{wire::RefuseReason::kDamaged, shared_.config.self.incarnation, {}};
      word = wire::pack({0, 0, {}, std::move(again)}, shared_.config.limits, shared_.transport);
    });
  }
}

// Each packed reply is used once, and packed again at the next tick.
void Replies::ask_to_dial_again(const ConnectionToken& to) {
  assert_on_loop(shared_.loop);
  for (Frames& word : again_words_) {
    if (word.empty()) continue;
    acceptor_->reply(to, std::exchange(word, {}));
    return;
  }
}

void Replies::refuse(const ConnectionToken& to, wire::RefuseReason reason, const std::string& text) {
  assert_on_loop(shared_.loop);
  wire::Refuse refuse{reason, shared_.config.self.incarnation, text};
  send(to, std::move(refuse));
}

bool Replies::send(const ConnectionToken& to, wire::Body body) {
  assert_on_loop(shared_.loop);
  Frames frames = wire::pack({0, 0, {}, std::move(body)}, shared_.config.limits, shared_.transport);
  for (const Frame& frame : frames) shared_.stats.bytes_sent += frame.size();
  return acceptor_->reply(to, std::move(frames));
}

}  // namespace distag
