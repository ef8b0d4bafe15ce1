#include "capi/support/descriptor_limit.h"

#include <fcntl.h>
#include <sys/resource.h>

int set_descriptor_limit(int count) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = (rlim_t)count < limit.rlim_max ? (rlim_t)count : limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

int leave_descriptors_free(int count) {
  int limit = 0;
  for (; count > 0; ++limit)
    if (fcntl(limit, F_GETFD) < 0) --count;
  return set_descriptor_limit(limit);
}
