/* A bound on the memory of this process, by a control group of its own. */
#ifndef CAPI_SUPPORT_MEMORY_LIMIT_H
#define CAPI_SUPPORT_MEMORY_LIMIT_H

#include <stdint.h>

typedef struct memory_limit {
  char folder[512]; /* of the group; empty: none could be made */
  const char *file; /* that has the bound */
} memory_limit;

/* Moves this process into a new group, of version 1 or 2. 0 where the machine lets nobody make one. */
int memory_limit_begin(memory_limit *limit);
/* No more than that on top of what the process has now: it would be killed. 0 when that is refused. */
int memory_limit_set(const memory_limit *limit, int64_t bytes_more);
/* Of another process, once the one in the group has ended: removes the group. */
void memory_limit_end(const memory_limit *limit);

#endif /* CAPI_SUPPORT_MEMORY_LIMIT_H */
