#include "transport/socket/engine_promises.h"

namespace distag {

std::string_view row_of(EnginePromise promise) {
  switch (promise) {
    case EnginePromise::kProcessLives:
      return "a member, or whoever reaches a socket without keys, cannot end a process";
    case EnginePromise::kDescriptorsRunOut:
      return "descriptors run out";
    case EnginePromise::kMemoryRunsOut:
      return "memory runs out";
    case EnginePromise::kSilentConnections:
      return "silent connections";
    case EnginePromise::kAddressLogged:
      return "the address of a stranger is logged";
    case EnginePromise::kHangUpWithoutAWord:
      return "a stranger who hangs up without a word";
    case EnginePromise::kDiallerOfAnotherUser:
      return "`ipc://`, a dialler of another user";
    case EnginePromise::kListenerOfAnotherUser:
      return "`ipc://`, another user who listens";
    case EnginePromise::kMemoryOfAStranger:
      return "memory that a stranger takes";
    case EnginePromise::kFramesInOrder:
      return "a frame that is left out, put in or said again";
    case EnginePromise::kDeniedDialler:
      return "a dialler without the right key is DENIED";
    case EnginePromise::kBudgets:
      return "a slow worker keeps no more than the budgets of its senders (`max_in_flight_bytes`)";
    case EnginePromise::kForkedChild:
      return "a child that is forked without `exec` keeps none of a dead parent's connections";
    case EnginePromise::kKeysInMemory:
      return "keys in memory";
  }
  return {};
}

}  // namespace distag
