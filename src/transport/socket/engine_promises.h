#pragma once

#include <array>
#include <string_view>

namespace distag {

// The promises of socket engines that differ: the rows of the table in SECURITY.md ("What the engines promise"), in its
// order. Each engine says how far it keeps each (SocketEngine::promise), and a test compares the table with the
// engines. A check that one engine cannot pass names its row (tests/engines.txt).
enum class EnginePromise {
  kProcessLives,
  kDescriptorsRunOut,
  kMemoryRunsOut,
  kSilentConnections,
  kAddressLogged,
  kHangUpWithoutAWord,
  kDiallerOfAnotherUser,
  kListenerOfAnotherUser,
  kMemoryOfAStranger,
  kFramesInOrder,
  kDeniedDialler,
  kBudgets,
  kForkedChild,
  kKeysInMemory,
};

inline constexpr std::array kEnginePromises = {
    EnginePromise::kProcessLives,         EnginePromise::kDescriptorsRunOut,     EnginePromise::kMemoryRunsOut,
    EnginePromise::kSilentConnections,    EnginePromise::kAddressLogged,         EnginePromise::kHangUpWithoutAWord,
    EnginePromise::kDiallerOfAnotherUser, EnginePromise::kListenerOfAnotherUser, EnginePromise::kMemoryOfAStranger,
    EnginePromise::kFramesInOrder,        EnginePromise::kDeniedDialler,         EnginePromise::kBudgets,
    EnginePromise::kForkedChild,          EnginePromise::kKeysInMemory,
};

// The first cell of the row.
std::string_view row_of(EnginePromise promise);

}  // namespace distag
