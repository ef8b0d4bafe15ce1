/* Shared memory of this process that distag lends or has borrowed. */
#ifndef CAPI_SUPPORT_LENT_BYTES_H
#define CAPI_SUPPORT_LENT_BYTES_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capi/check.h"

/* The bytes of all blocks that this process has made and not closed, whether they are mapped or not. */
static inline int64_t lendable_bytes(void) {
  int64_t bytes = 0;
  DIR *const folder = opendir("/proc/self/fd");
  if (!CHECK(folder != NULL)) return -1;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char link[512] = "", path[300];
    struct stat seen;
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    if (readlink(path, link, sizeof link - 1) < 0 || strstr(link, "distag-block") == NULL) continue;
    if (stat(path, &seen) == 0) bytes += (int64_t)seen.st_blocks * 512;
  }
  closedir(folder);
  return bytes;
}

/* The bytes of all blocks of other processes that are mapped here. */
static inline int64_t borrowed_bytes(void) {
  char line[512];
  int64_t bytes = 0;
  FILE *const maps = fopen("/proc/self/maps", "r");
  if (!CHECK(maps != NULL)) return -1;
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long long begin = 0, end = 0;
    if (strstr(line, "distag-block") == NULL || strstr(line, " r--s ") == NULL) continue;
    if (sscanf(line, "%llx-%llx", &begin, &end) == 2) bytes += (int64_t)(end - begin);
  }
  fclose(maps);
  return bytes;
}

#endif /* CAPI_SUPPORT_LENT_BYTES_H */
