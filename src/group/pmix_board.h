#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/loop.h"
#include "base/thread.h"
#include "group/job_board.h"
#include "group/launchers.h"

namespace distag {

// The board of PMIx, by libpmix, which is loaded where it is used and let go again: where it is not there the outcome
// is UNSUPPORTED, and DISCONNECTED where no launcher serves this process. A thread of its own talks to the launcher for
// as long as an exchange takes.
class PmixBoard final : public JobBoard {
 public:
  static std::vector<std::string> libraries();  // names of libpmix

  PmixBoard(Loop& loop, ThreadHooks hooks, std::vector<std::string> names = libraries());
  ~PmixBoard() override;  // joins the thread

  void exchange(const std::string& key, const std::string& text, Done done, OnMissing on_missing) override;
  void withdraw() override;

  struct Shared;

 private:
  void end_thread();

  Loop& loop_;
  const ThreadHooks hooks_;
  const std::vector<std::string> names_;
  std::shared_ptr<Shared> shared_;  // of the exchange that runs
  std::thread thread_;
};

// Blocks, for as long as libpmix takes to load and the launcher to answer. Throws as the outcome of a board.
PmixPlace ask_pmix(const std::vector<std::string>& names = PmixBoard::libraries());

}  // namespace distag
