#include "rpc/function_table.h"

#include <utility>

#include "base/mutex.h"
#include "tensor/utf8.h"

namespace distag {
namespace {

constexpr size_t kMaxName = 127;

}  // namespace

void check_function_name(const std::string& name) {
  if (name.empty() || name.size() > kMaxName) {
    fail(Status::kInvalidArgument, "the name of a function has 1 to {} bytes, this one has {}", kMaxName, name.size());
  }
  if (!is_valid_utf8(name) || name.find('\0') != std::string::npos) {
    fail(Status::kInvalidArgument, "the name of a function is UTF-8 without a zero byte");
  }
}

void FunctionTable::add(const std::string& name, OfferedFunction function) {
  check_function_name(name);
  if (!function.run) fail(Status::kInvalidArgument, "function \"{}\": there is nothing to run", name);
  // Made outside the lock, as it is destroyed when the name is taken: objects that it holds belong to the host.
  auto entry = std::make_shared<const OfferedFunction>(std::move(function));
  bool added = false;
  {
    MutexLock lock(mutex_);
    added = functions_.try_emplace(name, entry).second;
  }
  if (!added) fail(Status::kInvalidState, "function \"{}\" is registered already", name);
}

void FunctionTable::remove(const std::string& name) {
  std::shared_ptr<const OfferedFunction> gone;
  MutexLock lock(mutex_);
  const auto found = functions_.find(name);
  if (found == functions_.end()) return;
  gone = std::move(found->second);
  functions_.erase(found);
}

std::shared_ptr<const OfferedFunction> FunctionTable::find(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : found->second;
}

}  // namespace distag
