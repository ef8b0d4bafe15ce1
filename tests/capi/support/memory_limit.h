/* A bound on the memory of this process, by a control group of its own. */
#ifndef CAPI_SUPPORT_MEMORY_LIMIT_H
#define CAPI_SUPPORT_MEMORY_LIMIT_H

#include <stdint.h>

typedef struct memory_limit {
  char folder[512]; /* of the group; empty: none could be made */
  const char *file; /* that has the bound */
} memory_limit;

/* Moves this process into a new group, of version 1 or 2. 0 if the machine does not allow one. */
int memory_limit_begin(memory_limit *limit);
/* Allows this much more than the process has now: beyond that it is killed. 0 if that is refused. */
int memory_limit_set(const memory_limit *limit, int64_t bytes_more);
/* Removes the group. Another process calls this, once the process in the group has ended. */
void memory_limit_end(const memory_limit *limit);

#endif /* CAPI_SUPPORT_MEMORY_LIMIT_H */
