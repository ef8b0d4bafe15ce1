#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "rpc/rpc.h"

namespace distag {

// Throws INVALID_ARGUMENT unless `name` can name a function: 1 to 127 bytes of UTF-8 without a zero byte.
void check_function_name(const std::string& name);

// A function that is offered under a name. Functions of the host run on the functions executor; functions of rpc itself
// are short and run on the loop.
struct OfferedFunction {
  Function run;
  bool on_loop = false;
  std::vector<std::string> callers = {};  // the only other workers that may call it; empty: all
  bool is_control = false;                // a function of the group itself never waits
};

// The functions of a worker. Any thread. A caller that runs a function holds its entry.
class FunctionTable {
 public:
  // Throws INVALID_STATE when the name is taken, INVALID_ARGUMENT when it is malformed.
  void add(const std::string& name, OfferedFunction function);
  // A function that was found before the removal may still run.
  void remove(const std::string& name);

  std::shared_ptr<const OfferedFunction> find(const std::string& name) const;  // nullptr: none

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<const OfferedFunction>> functions_ GUARDED_BY(mutex_);
};

}  // namespace distag
