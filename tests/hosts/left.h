/* The counts of a host before it loads a plugin and after it has unloaded it. */
#ifndef DISTAG_TESTS_HOSTS_LEFT_H
#define DISTAG_TESTS_HOSTS_LEFT_H

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Entries of a folder of /proc: threads of this process in "task", descriptors in "fd". */
static inline int count_entries(const char* folder) {
  DIR* open = opendir(folder);
  int count = 0;
  while (open != NULL && readdir(open) != NULL) ++count;
  if (open != NULL) closedir(open);
  return count;
}

/* Mappings of files whose path has a part in it. */
static inline int count_mappings(const char* part) {
  char line[4096];
  FILE* maps = fopen("/proc/self/maps", "r");
  int count = 0;
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) count += strstr(line, part) != NULL;
  if (maps != NULL) fclose(maps);
  return count;
}

typedef struct left {
  int threads, descriptors;
} left;

static inline left count_left(void) {
  left found;
  found.threads = count_entries("/proc/self/task");
  found.descriptors = count_entries("/proc/self/fd");
  return found;
}

/* The counts at the end. A thread that was joined may be listed for a moment longer. */
static inline left count_left_since(left before) {
  left now = count_left();
  for (int look = 0; look < 1000000 && now.threads != before.threads; ++look) {
    sched_yield();
    now = count_left();
  }
  return now;
}

/* Ends the host when something is left of a plugin and its library. */
static inline void check_left(left before, const char* plugin) {
  const left now = count_left_since(before);
  const int plugins = count_mappings(plugin), libraries = count_mappings("libdistag");
  if (now.threads == before.threads && now.descriptors == before.descriptors && plugins + libraries == 0) return;
  printf("left: %d threads, %d descriptors, mappings of %s %d, of libdistag %d\n", now.threads - before.threads,
         now.descriptors - before.descriptors, plugin, plugins, libraries);
  exit(1);
}

/* Frames of a host, in rounds: one for each time that the plugin is loaded. How long they take is told, not judged, as
 * that is up to the machine: the longest is measured by the time of the processor, and a frame that is long by the
 * clock is late only if it slept in there by itself. A frame that is long by itself is so in each round: one round at
 * least should have none of 5 ms, and all frames but one in twenty should be in time. */
typedef struct frames {
  int count, late;
  int rounds, long_rounds;
  double longest; /* ms of the processor, of the rounds that have ended */
  double longest_of_round;
  struct timespec clock, processor;
  long sleeps;
} frames;

static inline double milliseconds_since(clockid_t which, struct timespec begin) {
  struct timespec now;
  clock_gettime(which, &now);
  return (double)(now.tv_sec - begin.tv_sec) * 1e3 + (double)(now.tv_nsec - begin.tv_nsec) * 1e-6;
}
static inline long count_sleeps(void) {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}
static inline void begin_frame(frames* all) {
  clock_gettime(CLOCK_MONOTONIC, &all->clock);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &all->processor);
  all->sleeps = count_sleeps();
}
static inline void end_frame(frames* all) {
  const double busy = milliseconds_since(CLOCK_THREAD_CPUTIME_ID, all->processor);
  ++all->count;
  all->late += milliseconds_since(CLOCK_MONOTONIC, all->clock) > 5 && count_sleeps() > all->sleeps;
  if (busy > all->longest_of_round) all->longest_of_round = busy;
}
static inline void end_round(frames* all) {
  ++all->rounds;
  all->long_rounds += all->longest_of_round >= 5;
  if (all->longest_of_round > all->longest) all->longest = all->longest_of_round;
  all->longest_of_round = 0;
}
static inline void check_frames(const frames* all) {
  printf("%d frames, %d of them late, the longest %.2f ms; %d of %d rounds with one of 5 ms\n", all->count, all->late,
         all->longest, all->long_rounds, all->rounds);
  if (all->rounds <= 0 || all->count <= 0) exit(1);
  printf("figure: hosts.longest_frame_ms %.2f ms\n", all->longest);
  printf("figure: hosts.late_frames_percent %.2f %%\n", 100.0 * all->late / all->count);
  printf("figure: hosts.long_rounds_percent %.2f %%\n", 100.0 * all->long_rounds / all->rounds);
}

#endif
