#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "rpc/rpc.h"

namespace distag {

// What the host offers under a name. Any thread. A function that runs is held by whoever runs it.
class FunctionTable {
 public:
  // Throws INVALID_STATE when the name is taken, INVALID_ARGUMENT for its form.
  void add(const std::string& name, Function function);

  std::shared_ptr<const Function> find(const std::string& name) const;  // nullptr: none

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Function>> functions_;
};

}  // namespace distag
