#include "shortage/allocations.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

/* glibc's own, by the names it gives them for this. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static atomic_long asked;
static atomic_long first_short = LONG_MAX;
static atomic_long last_short = LONG_MAX;
static atomic_int is_limit;
static atomic_ulong only_thread; /* 0: all */
static atomic_long freed;        /* bytes given back and not taken again, while there is a limit */

static int is_short(long number) {
  return number >= atomic_load_explicit(&first_short, memory_order_relaxed) &&
         number <= atomic_load_explicit(&last_short, memory_order_relaxed);
}

static int is_of_others(void) {
  const unsigned long only = atomic_load_explicit(&only_thread, memory_order_relaxed);
  return only != 0 && only != (unsigned long)pthread_self();
}

static int is_refused(size_t size) {
  if (is_of_others()) return 0;
  const long number = atomic_fetch_add(&asked, 1) + 1;
  if (!is_short(number)) return 0;
  if (atomic_load(&is_limit)) {
    const long left = atomic_fetch_sub(&freed, (long)size) - (long)size;
    if (left >= 0) return 0;
    atomic_fetch_add(&freed, (long)size);
  }
  errno = ENOMEM;
  return 1;
}

void *malloc(size_t size) { return is_refused(size) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return is_refused(count * size) ? NULL : __libc_calloc(count, size); }
void *realloc(void *memory, size_t size) { return is_refused(size) ? NULL : __libc_realloc(memory, size); }
void *memalign(size_t alignment, size_t size) { return is_refused(size) ? NULL : __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) {
  return is_refused(size) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **out_memory, size_t alignment, size_t size) {
  void *const memory = is_refused(size) ? NULL : __libc_memalign(alignment, size);
  if (memory == NULL) return ENOMEM;
  *out_memory = memory;
  return 0;
}

void free(void *memory) {
  if (memory != NULL && atomic_load(&is_limit) && !is_of_others() && is_short(atomic_load(&asked))) {
    atomic_fetch_add(&freed, (long)malloc_usable_size(memory));
  }
  __libc_free(memory);
}

void allocations_count_from_here(const shortage *wanted) {
  const int is_any = wanted != NULL && wanted->first > 0;
  atomic_store(&first_short, LONG_MAX);
  atomic_store(&asked, 0);
  atomic_store(&freed, 0);
  atomic_store(&is_limit, is_any && wanted->is_limit);
  atomic_store(&only_thread, is_any && wanted->is_of_this_thread ? (unsigned long)pthread_self() : 0);
  atomic_store(&last_short, is_any ? wanted->first + wanted->count - 1 : LONG_MAX);
  atomic_store(&first_short, is_any ? wanted->first : LONG_MAX);
}

long allocations_stop(void) {
  atomic_store(&first_short, LONG_MAX);
  return atomic_load(&asked);
}

void allocations_stop_for_this_thread(void) {
  if (atomic_load(&only_thread) == (unsigned long)pthread_self()) allocations_stop();
}
