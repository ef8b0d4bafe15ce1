#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/task.h"
#include "spmd/program.h"
#include "tensor/value.h"

// Work on the files of a line, in the order of the calls, whether or not the program waits for it.
namespace distag::spmd {

// The turn of work that runs on the calling thread. The constructor waits for the work before it.
class WorkTurn {
 public:
  explicit WorkTurn(const Line& line);
  ~WorkTurn() { done_->complete(Unit()); }
  WorkTurn(const WorkTurn&) = delete;
  WorkTurn& operator=(const WorkTurn&) = delete;

 private:
  const std::shared_ptr<Future<Unit>> done_ = Future<Unit>::make();
};

// Work beside the program, on the pool. Its calls are on a line of their own, which belongs to this kind of work, so
// the program's calls cannot come in between. The worker does not leave before it is done.
using Background = UniqueFunction<Value(const Line& own)>;
// Gets a failure whose future was dropped before anyone asked for its outcome.
using OnLost = std::function<void(const Error& error)>;
struct Begun {
  std::shared_ptr<Future<Value>> future;
  std::shared_ptr<std::atomic<bool>> is_seen;  // set once a caller asks for the outcome
};

// For a call that the members have agreed on. If it cannot begin on this member alone, the mesh ends.
Begun begin_behind(const Line& line, const char* operation, Background work, OnLost on_lost);

}  // namespace distag::spmd
