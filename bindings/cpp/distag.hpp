// distag for C++17 and newer: a header-only layer over distag.h alone.                SPDX-License-Identifier: MIT
//
//  1. Handles are values. Copying one retains, moving is free, the last copy releases. worker, invocation and reply
//     only move. An empty handle (default-made, moved from) is false; a call on it fails with INVALID_ARGUMENT.
//  2. Each function has two forms, as those of <filesystem>. Without a status it throws distag::error. With a
//     `status &` as its last argument it throws nothing of distag's, and follows the chain rule of distag.h: a call
//     that gets an empty handle while the status holds a failure leaves the status as it is, so a chain is checked
//     once, at its end; clear() it before an unrelated one. With DISTAG_HPP_NO_EXCEPTIONS (set by -fno-exceptions) only
//     the second form exists, and the first does not compile.
//  3. Arguments and results of calls are the types of C++ (see values.hpp). The parameters of a registered function say
//     what it wants of its call (see functions.hpp).
//  4. Times are std::chrono; `forever` is spelled out, and a timeout of 0 in options is the default.
//  5. A view is read-only memory of a snapshot: no write shows in it, and it may outlive its tensor.
//  6. ~worker leaves the group, and waits only for functions that run (5 s at most); workers that are left at exit, or
//     when a library is unloaded, end in the same way.
//  7. Blocking calls, and the threads on which functions, hooks and callbacks run, are those of distag.h.
#ifndef DISTAG_HPP
#define DISTAG_HPP

#include "distag/checkpoint.hpp"
#include "distag/context.hpp"
#include "distag/custom.hpp"
#include "distag/functions.hpp"
#include "distag/futures.hpp"
#include "distag/loader.hpp"
#include "distag/mesh.hpp"
#include "distag/ops.hpp"
#include "distag/optimizer.hpp"
#include "distag/plan.hpp"
#include "distag/rref.hpp"
#include "distag/status.hpp"
#include "distag/tensor.hpp"
#include "distag/values.hpp"
#include "distag/worker.hpp"

#endif
