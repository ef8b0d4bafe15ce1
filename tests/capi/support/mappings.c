#define _GNU_SOURCE
#include "capi/support/mappings.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { kPage = 4096, kMostSingle = 4096 };

static char *region;
static size_t region_bytes;
static void *singles[kMostSingle];
static int single_count;

long mapping_limit(void) {
  long limit = 0;
  FILE *const file = fopen("/proc/sys/vm/max_map_count", "re");
  if (file == NULL) return 0;
  if (fscanf(file, "%ld", &limit) != 1 || limit > 1100000) limit = 0;
  fclose(file);
  return limit;
}

/* Neighbours of another protection are mappings of their own. */
static int fill_region(void) {
  const size_t bytes = (size_t)(mapping_limit() + 2) * kPage;
  if (region != NULL) return 1;
  void *const memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_limit() == 0 || memory == MAP_FAILED) return 0;
  region = memory;
  region_bytes = bytes;
  size_t at = 0;
  while (at < bytes && mprotect(region + at, kPage, PROT_READ) == 0) at += (size_t)2 * kPage;
  return at < bytes;
}

/* Single pages take the last few, which the split of a mapping does not get, and those that came back since. */
int use_up_mappings(void) {
  if (!fill_region()) return 0;
  while (single_count < kMostSingle) {
    const int protection = single_count % 2 == 0 ? PROT_READ | PROT_EXEC : PROT_READ;
    void *const one = mmap(NULL, kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (one == MAP_FAILED) return 1;
    singles[single_count++] = one;
  }
  return 0;
}

void give_mappings_back(void) {
  while (single_count > 0) munmap(singles[--single_count], kPage);
  if (region != NULL) munmap(region, region_bytes);
  region = NULL;
}
