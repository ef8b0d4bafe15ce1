#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/task.h"

namespace distag {

// A board that a launcher provides to the processes of its job: each process puts a text on it, and all read the texts
// once all are there. One exchange at a time. On the loop.
class JobBoard {
 public:
  struct Outcome {
    int32_t rank = -1;               // rank of this process in its job
    std::vector<std::string> texts;  // by rank; empty if a process has put none under this key
    std::optional<Error> error;      // if set, the other fields are invalid
  };
  using Done = UniqueFunction<void(Outcome)>;
  using OnMissing = std::function<void(std::vector<int32_t>)>;

  virtual ~JobBoard() = default;  // withdraws
  // `done` runs once, later; until then `on_missing` runs now and then with the ranks that have put nothing so far.
  virtual void exchange(const std::string& key, const std::string& text, Done done, OnMissing on_missing) = 0;
  // Neither callback runs any more.
  virtual void withdraw() = 0;
};

}  // namespace distag
