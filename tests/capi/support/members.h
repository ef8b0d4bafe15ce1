/* Members of a mesh within this process: a worker and a thread each. */
#ifndef CAPI_SUPPORT_MEMBERS_H
#define CAPI_SUPPORT_MEMBERS_H

#include <distag.h>

enum { kMostMembers = 8 };

typedef struct members {
  int32_t count;
  distag_worker *workers[kMostMembers];
} members;

/* Starts `count` workers that meet under a name of their own; 0 if that succeeded. */
int members_start(members *group, int32_t count, const char *name);
/* Shuts all down side by side, and releases them; 0 if that succeeded. */
int members_end(members *group);
/* Runs `program` on a thread for each rank below `count`, side by side, and waits for all. */
void members_run(members *group, int32_t count, void (*program)(members *group, int32_t rank));

#endif /* CAPI_SUPPORT_MEMBERS_H */
