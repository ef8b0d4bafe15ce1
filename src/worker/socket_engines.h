#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"

namespace distag {

class Executor;
class FdLoop;
class SocketEngine;

// The engine of tcp:// and ipc://. The numbers are those of distag_socket_engine.
enum class SocketEngineKind : uint32_t { kDefault = 0, kZmq = 1, kZmtp = 2 };

// The engine that the option names, else the environment (DISTAG_SOCKET_ENGINE; nullptr: not set), else libzmq. Throws
// INVALID_ARGUMENT for an unknown name.
SocketEngineKind choose_socket_engine(SocketEngineKind option, const char* environment);

// `ender`: runs the end of libzmq, which waits. `lease`: of the worker, for the checks of slow connections.
std::unique_ptr<SocketEngine> make_socket_engine(SocketEngineKind chosen, FdLoop& loop, Executor* ender, Nanos lease);

}  // namespace distag
