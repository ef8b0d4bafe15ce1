/* Memory of this process. */
#ifndef CAPI_SUPPORT_RESIDENT_H
#define CAPI_SUPPORT_RESIDENT_H

#include <unistd.h>

#include "capi/check.h"

/* The resident size in bytes, as it is now. */
static inline int64_t resident_bytes(void) {
  long long total = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file != NULL && fscanf(file, "%lld %lld", &total, &resident) == 2);
  if (file != NULL) fclose(file);
  return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

#endif /* CAPI_SUPPORT_RESIDENT_H */
