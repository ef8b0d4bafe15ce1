#include "coll/mesh_use.h"

#include "tensor/utf8.h"
#include "wire/format.h"

namespace distag {

MeshLine::Turn::Turn(MeshLine& line, const char* call) : line_(line) {
  MutexLock lock(line.mutex_);
  if (line.call_ != nullptr) {
    fail(Status::kInvalidState,
         "{}: line \"{}\" is in a call of {}: the calls of a line are made one after the other, by one thread; open "
         "another line",
         call, line.name_, line.call_);
  }
  line.call_ = call;
}

MeshLine::Turn::~Turn() {
  MutexLock lock(line_.mutex_);
  line_.call_ = nullptr;
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
