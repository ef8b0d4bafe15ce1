#pragma once

#include <memory>
#include <string>

#include "group/job_board.h"
#include "group/rendezvous.h"

namespace distag {

// "pmix://": the processes of one job whose launcher speaks PMIx. Each process puts its JOIN on the board of the job,
// and the world is all of them. No process can come back: a launcher ends a job that has lost a process.
std::unique_ptr<Rendezvous> make_pmix_rendezvous(const std::string& uri, Loop& loop, Log& log, JobBoard& board);

}  // namespace distag
