/* Members of a group in processes of their own, which meet in a folder of theirs. */
#ifndef CAPI_SUPPORT_PROCESSES_H
#define CAPI_SUPPORT_PROCESSES_H

#include <distag.h>
#include <sys/types.h>

enum { kMostProcesses = 64 };

typedef struct processes {
  int32_t count;
  char folder[32];
  char rendezvous[48];
  pid_t members[kMostProcesses];
} processes;

/* Forks `count` members, at most kMostProcesses, each of which runs `member` and exits with its result. They end with
 * the calling thread. 0 if that succeeded. */
int processes_start(processes *group, int32_t count,
                    int (*member)(const char *rendezvous, int32_t rank, int32_t count, void *data), void *data);
/* Waits for all and removes the folder. 0 if `killed` (-1: none) was ended by SIGKILL and all others exited with 0;
 * otherwise those that did not are printed. */
int processes_end(processes *group, int32_t killed);

/* The monotonic clock, which all processes share. */
int64_t now_ns(void);

#endif /* CAPI_SUPPORT_PROCESSES_H */
