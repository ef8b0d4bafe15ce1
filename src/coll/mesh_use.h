#pragma once

#include <memory>
#include <set>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "coll/mesh.h"

namespace distag {

// A mesh as its users on this worker hold it: handles, lines, tensors. After the last of them the worker leaves the
// mesh. Thread-safe.
class MeshUse {
 public:
  explicit MeshUse(std::shared_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}
  ~MeshUse() { mesh_->leave(); }
  MeshUse(const MeshUse&) = delete;
  MeshUse& operator=(const MeshUse&) = delete;

  Mesh& mesh() const { return *mesh_; }

 private:
  const std::shared_ptr<Mesh> mesh_;
};

// A line of a mesh in the program of this worker: one call at a time. Thread-safe.
class MeshLine {
 public:
  explicit MeshLine(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }  // empty: that of the mesh itself

  // The calling thread is in a call of the line while this lives. Throws INVALID_STATE naming both calls if another is
  // under way: by a second thread, or by a callback that a waiting call runs.
  class Turn {
   public:
    Turn(MeshLine& line, const char* call);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    MeshLine& line_;
  };

  // Within a turn: the line is free meanwhile, for calls of this thread alone.
  class Pause {
   public:
    Pause(MeshLine& line, const char* call);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    MeshLine& line_;
    const char* const call_;
    const char* outer_ = nullptr;  // the call of this thread that was paused before
  };

 private:
  const std::string name_;
  Mutex mutex_;
  const char* call_ GUARDED_BY(mutex_) = nullptr;    // under way
  const char* paused_ GUARDED_BY(mutex_) = nullptr;  // likewise, for calls of one thread
  std::thread::id paused_by_ GUARDED_BY(mutex_);
};

// The names of the lines of one mesh that are open on this worker. Thread-safe.
class LineNames {
 public:
  // Throws INVALID_STATE when that name is open, INVALID_ARGUMENT when it is not a valid one.
  void open(const std::string& name);
  void close(const std::string& name);

 private:
  Mutex mutex_;
  std::set<std::string> names_ GUARDED_BY(mutex_);
};

}  // namespace distag
