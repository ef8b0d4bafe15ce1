#define _GNU_SOURCE
#include "capi/support/processes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int processes_start(processes *group, int32_t count,
                    int (*member)(const char *rendezvous, int32_t rank, int32_t count, void *data), void *data) {
  group->count = 0;
  group->folder[0] = 0;
  if (count > kMostProcesses) return 1;
  snprintf(group->folder, sizeof group->folder, "/tmp/distag-group-XXXXXX");
  if (mkdtemp(group->folder) == NULL) {
    perror("mkdtemp");
    return 1;
  }
  snprintf(group->rendezvous, sizeof group->rendezvous, "file://%s", group->folder);
  for (; group->count < count; ++group->count) {
    const pid_t made = fork();
    if (made == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test itself be killed */
      _exit(member(group->rendezvous, group->count, count, data));
    }
    if (made < 0) {
      perror("fork");
      return 1;
    }
    group->members[group->count] = made;
  }
  return 0;
}

int processes_end(processes *group, int32_t killed) {
  int failed = 0;
  for (int32_t rank = 0; rank < group->count; ++rank) {
    int status = 0;
    const int is_waited = waitpid(group->members[rank], &status, 0) == group->members[rank];
    const int is_right = rank == killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                        : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (is_waited && is_right) continue;
    fprintf(stderr, "the process of rank %d ended with the status %d of waitpid\n", (int)rank, status);
    failed = 1;
  }
  char command[64];
  snprintf(command, sizeof command, "rm -rf '%s'", group->folder);
  return system(command) != 0 || failed;
}

int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * DISTAG_SECOND + now.tv_nsec;
}
