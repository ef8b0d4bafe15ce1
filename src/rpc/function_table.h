#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "rpc/rpc.h"

namespace distag {

// Throws INVALID_ARGUMENT unless it can be the name of a function: 1 to 127 bytes of UTF-8 without a zero byte.
void check_function_name(const std::string& name);

// A function that is offered under a name: by the host, on the functions executor; or of rpc's own, short and on the
// loop.
struct OfferedFunction {
  Function run;
  bool on_loop = false;
  std::vector<std::string> callers = {};  // the only other workers that may call it; empty: all
  bool is_control = false;                // of the group itself: waits for nothing
};

// The functions of a worker. Any thread. A function that runs is held by whoever runs it.
class FunctionTable {
 public:
  // Throws INVALID_STATE when the name is taken, INVALID_ARGUMENT for its form.
  void add(const std::string& name, OfferedFunction function);
  // A caller that finds it no more lets a run that was found go on.
  void remove(const std::string& name);

  std::shared_ptr<const OfferedFunction> find(const std::string& name) const;  // nullptr: none

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<const OfferedFunction>> functions_ GUARDED_BY(mutex_);
};

}  // namespace distag
