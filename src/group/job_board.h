#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/task.h"

namespace distag {

// What a launcher has for the processes of its job: a board on which each puts a text, and which all read once all
// have. One exchange at a time. On the loop.
class JobBoard {
 public:
  struct Outcome {
    int32_t rank = -1;               // of this process in its job
    std::vector<std::string> texts;  // by rank; empty where a process has put none under this key
    std::optional<Error> error;      // then all else counts for nothing
  };
  using Done = UniqueFunction<void(Outcome)>;
  using OnMissing = std::function<void(std::vector<int32_t>)>;

  virtual ~JobBoard() = default;  // withdraws
  // `done` runs once, later; until then `on_missing` runs now and then, with the ranks that have put nothing so far.
  virtual void exchange(const std::string& key, const std::string& text, Done done, OnMissing on_missing) = 0;
  // Neither of them runs any more.
  virtual void withdraw() = 0;
};

}  // namespace distag
