/* Memory runs out on the thread of one member at each allocation of a collective in turn: the others get that failure
 * or the sum, and the next call of that member is not taken for the one that failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/members.h"
#include "capi/support/own_malloc.h"

enum { kSize = 2, kShort = 1 };

static _Thread_local int here; /* allocations of this thread until one fails; 0: none does */
static int failing;            /* the allocation of this round */
static int is_async, has_failed, is_refused;
static distag_mesh *meshes[kSize];

#if HAS_OWN_MALLOC
extern void *__libc_malloc(size_t size);

/* The library uses this malloc. */
__attribute__((visibility("default"))) void *malloc(size_t size) {
  if (here > 0 && --here == 0) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_malloc(size);
}
#endif

static void make_mesh(members *group, int32_t rank) {
  static const int64_t shape[] = {kSize};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  options.timeout_ns = 60 * DISTAG_SECOND;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, shape, NULL, 1, &options, &meshes[rank], &err));
}

static void release_mesh(members *group, int32_t rank) {
  (void)group;
  distag_mesh_release(meshes[rank]);
}

/* Calls a sum of `x` and waits for it, with the allocation that fails, if there is one, in the call alone. */
static distag_status sum(distag_mesh *mesh, distag_tensor *x, int which, distag_error *err) {
  distag_future *future = NULL;
  distag_tensor *y = NULL;
  here = which;
  const distag_status status = is_async ? distag_collective_async(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &future, err)
                                        : distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &y, err);
  if (which > 0) has_failed = here == 0;
  here = 0;
  if (which > 0) is_refused = status != DISTAG_OK;
  if (future != NULL) distag_future_wait(future, DISTAG_FOREVER, err);
  distag_future_release(future);
  distag_tensor_release(y);
  return err->code;
}

/* Two sums of other shapes; the first one is short of memory. */
static void call_twice(members *group, int32_t rank) {
  (void)group;
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t shape[] = {3 + i};
    distag_error err = DISTAG_ERROR_INIT;
    distag_tensor *x = NULL;
    CHECK_OK(distag_ones(DISTAG_FLOAT64, shape, 1, &x, &err));
    const distag_status status = sum(meshes[rank], x, rank == kShort && i == 0 ? failing : 0, &err);
    if (status != DISTAG_OK &&
        (!CHECK_INT(status, DISTAG_E_OUT_OF_MEMORY) || (rank != kShort && !CHECK_INT(err.origin_rank, kShort)))) {
      fprintf(stderr, "  at allocation %d, rank %d, call %d, async %d: %s\n", failing, (int)rank, (int)i + 1, is_async,
              err.message);
    }
    distag_tensor_release(x);
  }
}

/* Counts those of its calls that were refused. */
static int run_rounds(members *group) {
  int refused = 0;
  has_failed = 1;
  for (failing = 1; has_failed && check_failures == 0; ++failing) {
    members_run(group, kSize, make_mesh);
    members_run(group, kSize, call_twice);
    members_run(group, kSize, release_mesh);
    refused += is_refused;
  }
  return refused;
}

int main(void) {
  members group;
  if (!HAS_OWN_MALLOC) return 0;
  alarm(500);
  if (!CHECK_INT(members_start(&group, kSize, "collective-memory"), 0)) return check_end();
  for (is_async = 0; is_async < 2; ++is_async) {
    const int refused = run_rounds(&group);
    fprintf(stderr, "%d allocations of a call, %d of them refused it\n", failing - 1, refused);
    CHECK(refused > 3);
  }
  CHECK_INT(members_end(&group), 0);
  CHECK_INT(distag_get_handle_count(), 0);
  return check_end();
}
