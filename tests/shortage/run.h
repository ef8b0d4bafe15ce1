/* A run of a scenario with some allocations refused, and what is seen of it. */
#ifndef SHORTAGE_RUN_H
#define SHORTAGE_RUN_H

#include <distag.h>

#include "shortage/allocations.h"

/* In memory that the sweep shares with its runs: what a run wrote before it died counts. */
typedef struct run_result {
  long allocations;           /* while they were counted */
  int refusals;               /* calls that answered OUT_OF_MEMORY */
  int late;                   /* calls that answered DEADLINE: something was lost */
  int others;                 /* calls that answered anything else that is no OK */
  int wrong;                  /* values or gradients that are not right */
  long long handles;          /* left at the end */
  int has_ended;              /* got to its end */
  int aborted;                /* by SIGABRT or another signal */
  const char *volatile doing; /* the call that runs, or the last one that ran */
  char note[400];             /* the first of `others`, `late` or `wrong` */
  void *stack[24];            /* of the abort */
  int stack_depth;
} run_result;

typedef struct run_plan {
  shortage missing;
  const char *directory; /* empty, this run's own */
} run_plan;

typedef void (*scenario)(const run_plan *plan, run_result *result);

void run_local(const run_plan *plan, run_result *result);
void run_in_process(const run_plan *plan, run_result *result);
void run_twins(const run_plan *plan, run_result *result);
void run_events(const run_plan *plan, run_result *result);
void run_credit(const run_plan *plan, run_result *result);
/* In the caller's process, and in that of the worker that serves it. */
void run_tcp_caller(const run_plan *plan, run_result *result);
void run_tcp_server(const run_plan *plan, run_result *result);
/* In the caller's process, where the group has a key; and in the server's, where each worker has one. */
void run_group_key(const run_plan *plan, run_result *result);
void run_worker_keys(const run_plan *plan, run_result *result);
/* In the process of rank 0, and in that of rank 1, where they meet in etcd. */
void run_etcd_first(const run_plan *plan, run_result *result);
void run_etcd_second(const run_plan *plan, run_result *result);

/* Takes down how a call ended. 1: OK. */
int run_note(run_result *result, const char *call, distag_status status, const distag_error *err);
void run_note_wrong(run_result *result, const char *what, double actual, double expected);

/* Notes a call as the one that runs, then its end. `err` is in scope there, and is cleared first. */
#define RUN(result, call) ((result)->doing = #call, err.code = DISTAG_OK, run_note(result, #call, call, &err))

#endif /* SHORTAGE_RUN_H */
