/* Two workers whose memory fails: made, started and shut down by calls that are made again when memory was short. */
#ifndef SHORTAGE_GROUP_H
#define SHORTAGE_GROUP_H

#include "shortage/run.h"

/* More than the allocations that one run is refused. */
enum { kMostTries = 1000 };

static const int64_t kStartTime = 10 * DISTAG_SECOND;
/* Messages that a shortage loses on a connection are sent again half a lease later. */
static const int64_t kLease = 2 * DISTAG_SECOND;
static const int64_t kCallTime = 10 * DISTAG_SECOND;
static const int64_t kShutdownTime = 15 * DISTAG_SECOND;

/* "w0" or "w1", with the functions square (of a tensor) and parameter ([5 6], to be kept behind a reference). NULL when
 * memory never came. */
distag_worker *make_worker(run_result *result, int32_t rank, const char *rendezvous, const char *bind,
                           distag_executor_type executor);
/* The same with more options: those above are set in `options`. */
distag_worker *make_worker_with(run_result *result, distag_worker_options *options);

typedef distag_status (*operation)(distag_worker *worker, int64_t timeout, distag_future **out_future,
                                   distag_error *err);
/* 0: memory was short, so that the operation is begun again. */
typedef int (*outcome_check)(run_result *result, distag_future *future);

/* Begins an operation of each worker and waits for all; those that fail are begun again. 1: all went well. */
int run_each(run_result *result, operation begin, const char *name, distag_worker **workers, int count, int64_t timeout,
             outcome_check check /* nullable */);

/* Starts both, and shuts them down. */
int start_both(run_result *result, distag_worker **workers);
void stop_both(run_result *result, distag_worker **workers);
/* Once no allocation is refused any more: ends what is left of them, and counts the handles. */
void release_both(run_result *result, distag_worker **workers);

/* Waits for a future, also when it is the wait that gets no memory; NULL, as after a call that failed, is 0 at once.
 * 1: OK. */
int await_future(run_result *result, const char *name, distag_future *future);

#endif /* SHORTAGE_GROUP_H */
