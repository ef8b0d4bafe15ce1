/* Large tensors of a worker with an ipc endpoint lie in memory that its peers may read. This must not change the rest:
 * values that were sent stay, also in a peer that outlives the sender's tensor; a forked child reads what was there and
 * writes to its own copy; and nothing is left at the end. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

/* The old struct of DLPack, from its specification. */
struct DLManagedTensor {
  void *data;
  int32_t device[2];
  int32_t ndim;
  uint8_t dtype[4];
  int64_t *shape, *strides;
  uint64_t byte_offset;
  void *context;
  void (*deleter)(struct DLManagedTensor *);
};

enum { kCount = 1 << 19 }; /* 2 MiB of float32 */

static distag_error err = DISTAG_ERROR_INIT;
static distag_tensor *kept[64]; /* at the callee */
/* Atomic: a call over a lane orders both sides by memory that is mapped twice, which ThreadSanitizer does not see. */
static _Atomic int kept_count;

static distag_status keep(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_tensor *tensor = NULL;
  (void)user_data;
  CHECK(distag_invocation_get_tensor(invocation, 0, &tensor, told) == DISTAG_OK);
  distag_tensor_retain(tensor);
  kept[kept_count] = tensor;
  ++kept_count;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), told);
}

static int equals(distag_tensor *tensor, float value) {
  const float *data = distag_tensor_get_data(tensor);
  for (int i = 0; i < kCount; ++i) {
    if (data[i] != value) return 0;
  }
  return 1;
}

static distag_tensor *make(float value) {
  const int64_t shape[] = {kCount};
  distag_tensor *tensor = NULL;
  CHECK_OK(distag_full(value, DISTAG_FLOAT32, shape, 1, &tensor, &err));
  return tensor;
}

static void call_keep(distag_worker *worker, distag_tensor *tensor) {
  distag_value *argument = distag_tensor_as_value(tensor), *answer = NULL;
  CHECK_OK(distag_call(worker, NULL, "w1", "keep", &argument, 1, NULL, &answer, &err));
  CHECK(kept_count > 0);
  distag_value_release(answer);
}

/* The sender writes on, lets go, and fills all its memory with other values. */
static void what_was_sent_stays(distag_worker *worker) {
  distag_tensor *step = make(1);
  for (int round = 0; round < 20; ++round) {
    distag_tensor *tensor = make((float)round);
    call_keep(worker, tensor);
    CHECK_OK(distag_tensor_add_scaled(tensor, step, 100, &err));
    CHECK(equals(tensor, (float)round + 100));
    distag_tensor_release(tensor);
  }
  for (int round = 0; round < 20; ++round) CHECK(equals(kept[round], (float)round));
  distag_tensor_release(step);
}

/* The child reads what was there, releases the handles, and has memory of its own: the parent sees nothing of that. */
static void a_child_has_memory_of_its_own(distag_worker *worker, distag_tensor *before) {
  distag_tensor *tensor = make(7);
  call_keep(worker, tensor);
  const float *data = distag_tensor_get_data(tensor);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < kCount; ++i) CHECK(data[i] == 7);
    distag_tensor_release(tensor);
    distag_tensor_release(before);
    for (int i = 0; i < kept_count; ++i) distag_tensor_release(kept[i]);
    for (int i = 0; i < 20; ++i) {
      distag_tensor *own = make(9);
      CHECK(equals(own, 9) && distag_tensor_get_data(own) != data);
      distag_tensor_release(own);
    }
    _exit(check_failures == 0 ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_INT(status, 0);
  CHECK(equals(tensor, 7) && equals(before, 3));
  for (int round = 0; round < 20; ++round) CHECK(equals(kept[round], (float)round));
  CHECK(equals(kept[kept_count - 1], 7));
  distag_tensor_release(tensor);
}

/* Whether the address lies in memory that peers can be shown. */
static int is_shared(const void *address) {
  char line[512];
  int found = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    unsigned long begin = 0, end = 0;
    const int has_range = sscanf(line, "%lx-%lx", &begin, &end) == 2;
    if (has_range && (unsigned long)address >= begin && (unsigned long)address < end) {
      found = strstr(line, "distag-block") != NULL;
    }
  }
  if (maps != NULL) fclose(maps);
  return found;
}

/* Another library may write to an exported copy at any time, also in a forked child. */
static void an_exported_copy_is_of_this_process_alone(void) {
  distag_tensor *tensor = make(4);
  struct DLManagedTensor *copy = NULL, *shared = NULL;
  CHECK(is_shared(distag_tensor_get_data(tensor))); /* else nothing is tested */
  CHECK_OK(distag_tensor_export_dlpack_legacy(tensor, 0, &copy, &err));
  CHECK(!is_shared(copy->data) && *(const float *)copy->data == 4);
  copy->deleter(copy);
  /* A received tensor is read-only here: it is copied, as the old struct cannot say so. */
  CHECK_OK(distag_tensor_export_dlpack_legacy(kept[0], DISTAG_DLPACK_SHARE, &shared, &err));
  CHECK(!is_shared(shared->data));
  *(float *)shared->data = 1;
  shared->deleter(shared);
  CHECK(equals(kept[0], 0));
  distag_tensor_release(tensor);
}

int main(void) {
  char folder[] = "/tmp/distag-shared-XXXXXX", rendezvous[64];
  distag_worker *worker[2];
  alarm(500);
  CHECK(mkdtemp(folder) != NULL);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", folder);
  distag_tensor *before = make(3);
  for (int rank = 0; rank < 2; ++rank) {
    const distag_worker_options options = group_options(rank, 2, rendezvous);
    CHECK_OK(distag_worker_create(&options, &worker[rank], &err));
  }
  CHECK_OK(distag_worker_register(worker[1], "keep", keep, NULL, NULL, NULL, &err));
  CHECK_INT(group_start(worker, 2), 0);
  what_was_sent_stays(worker[0]);
  a_child_has_memory_of_its_own(worker[0], before);
  an_exported_copy_is_of_this_process_alone();
  call_keep(worker[0], before); /* made before the worker: it is copied on its way */
  CHECK(equals(kept[kept_count - 1], 3));
  distag_tensor_release(before);

  CHECK_INT(group_shutdown(worker, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(worker[i]);
  /* Tensors that the sender lent are right after its end, too. */
  for (int i = 0; i < 20; ++i) CHECK(equals(kept[i], (float)i));
  for (int i = 0; i < kept_count; ++i) distag_tensor_release(kept[i]);
  char line[512];
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) CHECK(strstr(line, "distag-block") == NULL);
  if (maps != NULL) fclose(maps);
  CHECK_INT(rmdir(folder), 0);
  return check_end();
}
