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

// The board of PMIx, by libpmix, which is loaded on use and released again. The outcome is UNSUPPORTED if libpmix is
// missing, and DISCONNECTED if no launcher serves this process. A separate thread talks to the launcher during an
// exchange.
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
  std::shared_ptr<Shared> shared_;  // state of the running exchange
  std::thread thread_;
};

// Blocks while libpmix loads and the launcher answers. Throws the errors that a board has as outcome.
PmixPlace ask_pmix(const std::vector<std::string>& names = PmixBoard::libraries());

}  // namespace distag
