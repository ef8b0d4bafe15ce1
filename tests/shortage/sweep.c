/* Memory that fails: scenarios run again and again, each time with other allocations refused, in processes of their
 * own. Prints a table.
 *
 *   shortage_sweep              a sample of them, evenly spread
 *   shortage_sweep sockets      the same of those scenarios that use sockets
 *   shortage_sweep all          each one
 *   shortage_sweep SCENARIO     each one of a scenario; with STEP: every STEP-th; with FIRST COUNT [1]: one run, whose
 *                               abort tells more
 *
 * Where libzmq carries the sockets, it ends the process when it asks for memory (SECURITY.md): an abort within it is
 * counted apart, and is no fault of distag's. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shortage/etcd_server.h"
#include "shortage/run.h"

enum { kMostAtOnce = 4, kSamples = 40, kRunSeconds = 240 };

typedef struct swept {
  const char *name;
  scenario run;
  int samples;    /* of the short sweep */
  int is_remote;  /* its shortage may cost the connection, or the start of the other process: calls answer that */
  int needs_etcd; /* a server; and libcurl, loaded before */
} swept;

/* In what ways memory is short. */
static const struct {
  const char *name;
  long count;
  int is_limit;
} kModes[] = {{"one", 1, 0}, {"twelve", 12, 0}, {"no more", 400, 1}};
enum { kModeCount = sizeof kModes / sizeof kModes[0] };

static const swept kRows[] = {
    {"local", run_local, 120, 0, 0},
    {"in_process", run_in_process, kSamples, 0, 0},
    {"twins", run_twins, kSamples, 0, 0},
    {"events", run_events, kSamples, 0, 0},
    {"credit", run_credit, kSamples, 0, 0},
    {"tcp_caller", run_tcp_caller, kSamples / 2, 1, 0},
    {"tcp_server", run_tcp_server, kSamples / 2, 1, 0},
    {"group_key", run_group_key, kSamples / 4, 1, 0},
    {"worker_keys", run_worker_keys, kSamples / 4, 1, 0},
    {"etcd_first", run_etcd_first, kSamples / 4, 1, 1},
    {"etcd_second", run_etcd_second, kSamples / 4, 1, 1},
};
enum { kRowCount = sizeof kRows / sizeof kRows[0] };

typedef struct totals {
  int runs, refused, others, late, wrong, drifted, hung, aborted, by_libzmq;
} totals;

/* ---- inside of a run ---- */

static run_result *current;

int run_note(run_result *result, const char *call, distag_status status, const distag_error *err) {
  if (status == DISTAG_OK) return 1;
  if (status == DISTAG_E_OUT_OF_MEMORY) {
    ++result->refusals;
    return 0;
  }
  ++*(status == DISTAG_E_DEADLINE ? &result->late : &result->others);
  if (result->note[0] == '\0') {
    snprintf(result->note, sizeof result->note, "%.40s: %s: %.300s", call, distag_status_get_name(status),
             err->message);
  }
  return 0;
}

void run_note_wrong(run_result *result, const char *what, double actual, double expected) {
  ++result->wrong;
  if (result->note[0] == '\0') snprintf(result->note, sizeof result->note, "%s: %g, not %g", what, actual, expected);
}

/* Dies of it. */
static void on_fatal(int signal) {
  current->aborted = 1;
  current->stack_depth = backtrace(current->stack, 24);
  _exit(100 + signal);
}

static void run_here(const swept *row, const run_plan *plan, run_result *result) {
  void *warm[4];
  const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  current = result;
  backtrace(warm, 4); /* loads what it needs now */
  for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; ++i) signal(fatal[i], on_fatal);
  row->run(plan, result);
  result->has_ended = 1;
}

/* ---- the sweep ---- */

typedef struct place {
  pid_t pid;
  int end; /* its descriptor: readable once it has ended */
  run_plan plan;
  run_result *result;
  double deadline;
  char directory[64];
} place;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void empty(const char *directory) {
  char path[512];
  struct dirent *entry;
  DIR *const entries = opendir(directory);
  while (entries != NULL && (entry = readdir(entries)) != NULL) {
    snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    if (entry->d_name[0] != '.') unlink(path);
  }
  if (entries != NULL) closedir(entries);
}

static void begin(const swept *row, place *slot, shortage missing) {
  empty(slot->directory);
  memset(slot->result, 0, sizeof *slot->result);
  slot->plan = (run_plan){missing, slot->directory};
  slot->deadline = now() + kRunSeconds;
  fflush(NULL);
  slot->pid = fork();
  if (slot->pid != 0) {
    slot->end = (int)syscall(SYS_pidfd_open, slot->pid, 0);
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  FILE *const quiet = freopen("/dev/null", "w", stderr); /* who aborts says why */
  (void)quiet;
  run_here(row, &slot->plan, slot->result);
  _exit(0);
}

static void tell(const swept *row, const place *slot, const char *what) {
  const shortage *const missing = &slot->plan.missing;
  printf("  %s %ld %ld %d: %s (%s) %s\n", row->name, missing->first, missing->count, missing->is_limit, what,
         slot->result->doing == NULL ? "" : slot->result->doing, slot->result->note);
}

/* A fork has its libraries at the same places. A fault that found no handler is one of libzmq's thread of sockets: that
 * blocks all signals, and no thread of distag's blocks this one. */
static int is_of_libzmq(const run_result *result, int status) {
  const char *const engine = getenv("DISTAG_SOCKET_ENGINE");
  const int is_there = engine == NULL || strcmp(engine, "zmtp") != 0;
  if (is_there && !result->aborted && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) return 1;
  for (int i = 0; i < result->stack_depth; ++i) {
    Dl_info of;
    if (dladdr(result->stack[i], &of) != 0 && strstr(of.dli_fname, "libzmq.so") != NULL) return 1;
  }
  return 0;
}

static void end(const swept *row, place *slot, int status, int is_hung, totals *sum) {
  const run_result *const result = slot->result;
  close(slot->end);
  slot->pid = 0;
  ++sum->runs;
  sum->refused += result->refusals > 0;
  if (is_hung) {
    ++sum->hung;
    tell(row, slot, "hangs");
  } else if (!result->has_ended && is_of_libzmq(result, status)) {
    ++sum->by_libzmq;
  } else if (!result->has_ended) {
    ++sum->aborted;
    tell(row, slot, "aborts");
    printf("  status %#x\n", (unsigned)status); /* who was killed has no stack */
    fflush(stdout);
    backtrace_symbols_fd(result->stack, result->stack_depth, 1);
  } else {
    sum->late += result->late > 0;
    sum->others += result->others > 0;
    sum->wrong += result->wrong > 0;
    sum->drifted += result->handles != 0;
    if (result->late > 0) tell(row, slot, "late");
    if (result->others > 0) tell(row, slot, "another failure");
    if (result->wrong > 0) tell(row, slot, "wrong");
    if (result->handles != 0) tell(row, slot, "handles are left");
  }
}

/* Until a run has ended, or has taken too long. */
static void wait_for_one(const place *slots) {
  struct pollfd ends[kMostAtOnce];
  double first = now() + kRunSeconds;
  for (int i = 0; i < kMostAtOnce; ++i) {
    ends[i] = (struct pollfd){slots[i].pid == 0 ? -1 : slots[i].end, POLLIN, 0};
    if (slots[i].pid != 0 && slots[i].deadline < first) first = slots[i].deadline;
  }
  const double left = first - now();
  poll(ends, kMostAtOnce, left > 0 ? (int)(left * 1000) + 1 : 0);
}

/* Waits until a slot is free, or until all are with `all`. */
static place *settle(const swept *row, place *slots, int all, totals *sum) {
  for (;;) {
    place *free_slot = NULL;
    int busy = 0;
    for (int i = 0; i < kMostAtOnce; ++i) {
      int status = 0;
      if (slots[i].pid != 0 && waitpid(slots[i].pid, &status, WNOHANG) == slots[i].pid) {
        end(row, &slots[i], status, 0, sum);
      } else if (slots[i].pid != 0 && now() > slots[i].deadline) {
        kill(slots[i].pid, SIGKILL);
        waitpid(slots[i].pid, &status, 0);
        end(row, &slots[i], status, 1, sum);
      }
      if (slots[i].pid == 0) {
        free_slot = &slots[i];
      } else {
        ++busy;
      }
    }
    if (free_slot != NULL && (!all || busy == 0)) return free_slot;
    wait_for_one(slots);
  }
}

/* How many allocations a run makes that is refused none. */
static long measure(const swept *row, place *slots) {
  totals ignored = {0};
  place *const slot = settle(row, slots, 1, &ignored);
  begin(row, slot, (shortage){0, 0, 0, 0});
  settle(row, slots, 1, &ignored);
  return slot->result->allocations;
}

/* `step` 0: a sample. */
static void sweep(const swept *row, place *slots, long step, totals *sum) {
  const long allocations = measure(row, slots);
  if (allocations == 0) {
    printf("%s: no run without a shortage\n", row->name);
    ++sum->aborted;
  }
  const long stride = step > 0 ? step : allocations <= row->samples ? 1 : allocations / row->samples;
  for (int mode = 0; mode < kModeCount; ++mode) {
    const double began = now();
    totals here = {0};
    for (long first = 1 + mode * stride / kModeCount; first <= allocations; first += stride) {
      begin(row, settle(row, slots, 0, &here), (shortage){first, kModes[mode].count, kModes[mode].is_limit, 0});
    }
    settle(row, slots, 1, &here);
    printf("%-11s %6ld %4ld %-7s %5d %7d %6d %5d %5d %7d %5d %7d %7d %6.1f\n", row->name, allocations, stride,
           kModes[mode].name, here.runs, here.refused, here.others, here.late, here.wrong, here.drifted, here.hung,
           here.aborted, here.by_libzmq, now() - began);
    fflush(stdout);
    sum->wrong += here.wrong;
    sum->hung += here.hung;
    sum->aborted += here.aborted;
    sum->drifted += here.drifted;
    if (row->is_remote) continue;
    sum->others += here.others;
    sum->late += here.late;
  }
}

static int run_one(const swept *row, shortage missing, place *slot) {
  const run_plan plan = {missing, slot->directory};
  run_result *const result = slot->result;
  const pid_t pid = fork();
  if (pid == 0) {
    run_here(row, &plan, result);
    _exit(0);
  }
  printf("process %d\n", (int)pid);
  fflush(stdout);
  waitpid(pid, NULL, 0);
  printf("allocations %ld, refusals %d, late %d, others %d, wrong %d, handles %lld, ended %d, aborted %d\n%s\n",
         result->allocations, result->refusals, result->late, result->others, result->wrong, result->handles,
         result->has_ended, result->aborted, result->note);
  fflush(stdout);
  if (result->stack_depth > 0) backtrace_symbols_fd(result->stack, result->stack_depth, 1);
  return 0;
}

/* Whether the row can run here: some need a server, which runs from the first of them on. */
static int has_server(const swept *row, totals *sum) {
  static int is_running;
  if (!row->needs_etcd) return 1;
  if (!is_running) {
    is_running = etcd_server_start();
    etcd_server_load_client();
  }
  if (is_running) return 1;
  printf("%s: there is no etcd: install etcd-server\n", row->name);
  if (getenv("DISTAG_CI") != NULL) ++sum->aborted;
  return 0;
}

int main(int argc, char **argv) {
  static place slots[kMostAtOnce];
  totals sum = {0};
  const int is_of_sockets = argc == 2 && strcmp(argv[1], "sockets") == 0;
  const int is_full = argc > 1 && !is_of_sockets;
  char parent[] = "/tmp/distag-shortage-XXXXXX";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (mkdtemp(parent) == NULL) return perror("mkdtemp"), 1;
  for (int i = 0; i < kMostAtOnce; ++i) {
    snprintf(slots[i].directory, sizeof slots[i].directory, "%s/%d", parent, i);
    slots[i].result = mmap(NULL, sizeof(run_result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slots[i].result == MAP_FAILED || mkdir(slots[i].directory, 0700) != 0) return perror("a slot"), 1;
  }
  if (argc <= 3) {
    printf("%-11s %6s %4s %-7s %5s %7s %6s %5s %5s %7s %5s %7s %7s %6s\n", "scenario", "allocs", "step", "short",
           "runs", "refused", "others", "late", "wrong", "drifted", "hung", "aborted", "libzmq", "s");
  }
  for (int i = 0; i < kRowCount; ++i) {
    if (is_full && strcmp(argv[1], "all") != 0 && strcmp(argv[1], kRows[i].name) != 0) continue;
    if (is_of_sockets && !kRows[i].is_remote) continue;
    if (!has_server(&kRows[i], &sum)) continue;
    if (argc > 3) {
      run_one(&kRows[i], (shortage){atol(argv[2]), atol(argv[3]), argc > 4 ? atoi(argv[4]) : 0, 0}, &slots[0]);
    } else {
      sweep(&kRows[i], slots, argc > 2 ? atol(argv[2]) : is_full, &sum);
    }
  }
  for (int i = 0; i < kMostAtOnce; ++i) {
    empty(slots[i].directory);
    rmdir(slots[i].directory);
  }
  etcd_server_stop();
  rmdir(parent);
  return sum.others + sum.late + sum.wrong + sum.drifted + sum.hung + sum.aborted != 0;
}
