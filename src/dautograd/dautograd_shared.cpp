#include "dautograd/dautograd_shared.h"

#include "base/each_step.h"

namespace distag {

bool DautogradShared::is_gone(Incarnation worker) const {
  assert_on_loop(environment.loop);
  if (worker == self.incarnation) return false;
  return session == nullptr || session->find(worker) == nullptr || session->gone(worker) != nullptr;
}

std::string DautogradShared::describe(Incarnation worker) const {
  assert_on_loop(environment.loop);
  if (worker == self.incarnation) return fmt::format("worker \"{}\" (rank {})", self.name, self.rank);
  const Peer* peer = session == nullptr ? nullptr : session->find(worker);
  if (peer == nullptr) return fmt::format("a worker that is not known here ({:016x})", worker);
  return fmt::format("worker \"{}\" (rank {})", peer->name, peer->rank);
}

void DautogradShared::tell(Incarnation to, wire::Body body) {
  assert_on_loop(environment.loop);
  if (session == nullptr) return;
  try {
    session->send(to, std::move(body));
  } catch (const Error& error) {
    environment.log.write(LogLevel::kDebug, fmt::format("not told {}: {}", describe(to), error.message()));
  }
}

Error DautogradShared::sign(Error error) const {
  if (error.origin_rank() < 0) error.set_origin_rank(self.rank);
  EachStep each;  // the shorter text says enough where there is no memory
  each([this, &error] { error.add_context(fmt::format("worker \"{}\" (rank {})", self.name, self.rank)); });
  return error;
}

}  // namespace distag
