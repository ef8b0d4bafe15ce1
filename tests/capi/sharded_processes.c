/* Sharded training by 2, 4 and 8 processes. */
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"
#include "capi/support/sharded_model.h"

/* Returns the exit code of a process. */
static int run_member(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  static const char *const names[] = {"x"};
  static const int64_t shape[] = {-1};
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = NULL;
  distag_mesh *mesh = NULL;
  (void)data;
  alarm(500);
  const distag_worker_options options = group_options(rank, count, rendezvous);
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 60 * DISTAG_SECOND, &err));
  if (CHECK_OK(distag_mesh_create(worker, NULL, 0, shape, names, 1, NULL, &mesh, &err))) {
    for (size_t form = 0; form < 4; ++form) CHECK(sharded_train_is_right(worker, mesh, &kShardedForms[form]));
  }
  distag_mesh_release(mesh);
  CHECK_OK(distag_worker_shutdown(worker, 60 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  return check_end();
}

int main(void) {
  for (int32_t count = 2; count <= 16; count *= 2) {
    processes group;
    CHECK_INT(processes_start(&group, count, run_member, NULL), 0);
    CHECK_INT(processes_end(&group, -1), 0);
  }
  return check_end();
}
