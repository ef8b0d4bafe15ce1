#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/task.h"
#include "spmd/program.h"
#include "tensor/value.h"

// Work on files of a line, one after the other, whether the program waits for it or not.
namespace distag::spmd {

// The place of work that the calling thread does itself. Waits for the work before it.
class WorkTurn {
 public:
  explicit WorkTurn(const Line& line);
  ~WorkTurn() { done_->complete(Unit()); }
  WorkTurn(const WorkTurn&) = delete;
  WorkTurn& operator=(const WorkTurn&) = delete;

 private:
  const std::shared_ptr<Future<Unit>> done_ = Future<Unit>::make();
};

// Work beside the program, on the pool: its calls are on a line that belongs to this kind of work, so they meet those
// of the other members whatever the program does meanwhile. The worker does not leave before it is done.
using Background = UniqueFunction<Value(const Line& own)>;
// Hears of a failure whose future went before anyone asked for its outcome.
using OnLost = std::function<void(const Error& error)>;
struct Begun {
  std::shared_ptr<Future<Value>> future;
  std::shared_ptr<std::atomic<bool>> is_seen;  // set by those who ask for its outcome
};

// For a call of the line that the members have agreed on: where it cannot begin on this member alone the mesh ends.
Begun begin_behind(const Line& line, const char* operation, Background work, OnLost on_lost);

}  // namespace distag::spmd
