#include "coll/mesh_use.h"

#include <utility>

#include "tensor/utf8.h"
#include "wire/format.h"

namespace distag {

MeshLine::Turn::Turn(MeshLine& line, const char* call) : line_(line) {
  MutexLock lock(line.mutex_);
  const bool is_of_another = line.paused_ != nullptr && line.paused_by_ != std::this_thread::get_id();
  const char* const other = line.call_ != nullptr ? line.call_ : is_of_another ? line.paused_ : nullptr;
  if (other != nullptr) {
    fail(Status::kInvalidState,
         "{}: line \"{}\" is in a call of {}: the calls of a line are made one after the other, by one thread; open "
         "another line",
         call, line.name_, other);
  }
  line.call_ = call;
}

MeshLine::Turn::~Turn() {
  MutexLock lock(line_.mutex_);
  line_.call_ = nullptr;
}

MeshLine::Pause::Pause(MeshLine& line, const char* call) : line_(line), call_(call) {
  MutexLock lock(line.mutex_);
  outer_ = std::exchange(line.paused_, call);
  line.paused_by_ = std::this_thread::get_id();
  line.call_ = nullptr;
}

MeshLine::Pause::~Pause() {
  MutexLock lock(line_.mutex_);
  line_.paused_ = outer_;
  line_.call_ = call_;
}

void LineNames::open(const std::string& name) {
  if (name.empty() || name.size() > wire::kMaxNameBytes || !is_valid_utf8(name)) {
    fail(Status::kInvalidArgument, "the name of a line has {} bytes: give 1 to {}, of UTF-8", name.size(),
         wire::kMaxNameBytes);
  }
  MutexLock lock(mutex_);
  if (!names_.insert(name).second) {
    fail(Status::kInvalidState, "line \"{}\" is open on this worker: retain its handle, or give another name", name);
  }
}

void LineNames::close(const std::string& name) {
  MutexLock lock(mutex_);
  names_.erase(name);
}

}  // namespace distag
