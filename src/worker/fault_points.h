#pragma once

#include <memory>

#include "base/fd_loop.h"
#include "transport/transport.h"

namespace distag {

// The fault points of tests/faults: a decorator of the transport of a worker that talks to other processes, in which
// each kind of message, sent or arrived, is a fault point. That folder defines it and builds the worker for itself with
// DISTAG_FAULT_POINTS; in all other builds the transport is not decorated.
#ifdef DISTAG_FAULT_POINTS
std::unique_ptr<Transport> with_fault_points(std::unique_ptr<Transport> transport, FdLoop& loop);
#else
inline std::unique_ptr<Transport> with_fault_points(std::unique_ptr<Transport> transport, FdLoop&) { return transport; }
#endif

}  // namespace distag
