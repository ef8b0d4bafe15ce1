#include "capi/support/memory_limit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Finds the path in "9:memory:/path" (version 1) or "0::/path" (version 2). */
static int find_own_group(const char *controller, char *path, size_t size) {
  char line[512];
  int is_found = 0;
  FILE *file = fopen("/proc/self/cgroup", "r");
  if (file == NULL) return 0;
  while (!is_found && fgets(line, sizeof line, file) != NULL) {
    char *const names = strchr(line, ':');
    char *const own = names == NULL ? NULL : strchr(names + 1, ':');
    if (own == NULL) continue;
    *own = 0;
    if (strcmp(names + 1, controller) != 0) continue;
    own[1 + strcspn(own + 1, "\n")] = 0;
    snprintf(path, size, "%s", strcmp(own + 1, "/") == 0 ? "" : own + 1);
    is_found = 1;
  }
  fclose(file);
  return is_found;
}

static int write_number(const char *folder, const char *name, int64_t number) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  if (file == NULL) return 0;
  const int is_printed = fprintf(file, "%lld\n", (long long)number) > 0;
  return fclose(file) == 0 && is_printed;
}

static int64_t read_number(const char *folder, const char *name) {
  char path[600];
  long long number = -1;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "r");
  if (file == NULL) return -1;
  if (fscanf(file, "%lld", &number) != 1) number = -1;
  fclose(file);
  return number;
}

int memory_limit_begin(memory_limit *limit) {
  const struct {
    const char *controller, *root, *file;
  } kinds[] = {{"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"", "/sys/fs/cgroup", "memory.max"}};
  for (size_t i = 0; i < 2; ++i) {
    char own[256];
    if (!find_own_group(kinds[i].controller, own, sizeof own)) continue;
    snprintf(limit->folder, sizeof limit->folder, "%s%s/distag-%d", kinds[i].root, own, (int)getpid());
    if (mkdir(limit->folder, 0700) != 0) continue;
    limit->file = kinds[i].file;
    /* Version 2 has the file only where the groups above hand the controller on. */
    char path[600];
    snprintf(path, sizeof path, "%s/%s", limit->folder, limit->file);
    if (access(path, W_OK) == 0 && write_number(limit->folder, "cgroup.procs", (int64_t)getpid())) return 1;
    rmdir(limit->folder);
  }
  limit->folder[0] = 0;
  return 0;
}

int memory_limit_set(const memory_limit *limit, int64_t bytes_more) {
  const char *const usage = strcmp(limit->file, "memory.max") == 0 ? "memory.current" : "memory.usage_in_bytes";
  const int64_t now = read_number(limit->folder, usage);
  return now >= 0 && write_number(limit->folder, limit->file, now + bytes_more);
}

void memory_limit_end(const memory_limit *limit) {
  if (limit->folder[0] != 0) rmdir(limit->folder);
}
