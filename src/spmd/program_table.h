#pragma once

#include <algorithm>
#include <map>
#include <memory>

#include "base/ids.h"
#include "base/mutex.h"
#include "spmd/program.h"

namespace distag::spmd {

// The meshes in use on one worker, by id, for messages that name their calls. Holds none of them. Thread-safe.
class ProgramTable {
 public:
  void add(const std::shared_ptr<Program>& program) {
    MutexLock lock(mutex_);
    std::erase_if(programs_, [](const auto& item) { return item.second.expired(); });
    programs_[program->mesh().id()] = program;
  }
  // nullptr: no mesh of that id is in use.
  std::shared_ptr<Program> find(const Id& mesh) const {
    MutexLock lock(mutex_);
    const auto found = programs_.find(mesh);
    return found == programs_.end() ? nullptr : found->second.lock();
  }

 private:
  mutable Mutex mutex_;
  std::map<Id, std::weak_ptr<Program>> programs_ GUARDED_BY(mutex_);
};

}  // namespace distag::spmd
