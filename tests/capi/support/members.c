#include "capi/support/members.h"

#include <pthread.h>
#include <stdio.h>

#include "capi/support/group.h"

int members_start(members *group, int32_t count, const char *name) {
  distag_error err = DISTAG_ERROR_INIT;
  char rendezvous[128];
  snprintf(rendezvous, sizeof rendezvous, "inproc://%s", name);
  group->count = count;
  for (int32_t i = 0; i < count; ++i) {
    const distag_worker_options options = group_options(i, count, rendezvous);
    distag_worker_create(&options, &group->workers[i], &err);
  }
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s\n", name, err.message);
  return err.code != DISTAG_OK || group_start(group->workers, (size_t)count) != 0;
}

int members_end(members *group) {
  const int failed = group_shutdown(group->workers, (size_t)group->count);
  for (int32_t i = 0; i < group->count; ++i) distag_worker_release(group->workers[i]);
  return failed;
}

typedef struct member {
  members *group;
  int32_t rank;
  void (*program)(members *group, int32_t rank);
} member;

static void *run(void *given) {
  const member *me = given;
  me->program(me->group, me->rank);
  return NULL;
}

void members_run(members *group, int32_t count, void (*program)(members *group, int32_t rank)) {
  pthread_t threads[kMostMembers];
  member all[kMostMembers];
  for (int32_t i = 0; i < count; ++i) {
    all[i] = (member){group, i, program};
    if (pthread_create(&threads[i], NULL, run, &all[i]) != 0) fprintf(stderr, "no thread for rank %d\n", (int)i);
  }
  for (int32_t i = 0; i < count; ++i) pthread_join(threads[i], NULL);
}
