/* To release what is only lent does nothing: its lender still has it. */
#include "capi/check.h"
#include "capi/support/group.h"

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  const distag_worker_options options = group_options(0, 1, "inproc://lent");
  distag_worker *worker = NULL;
  distag_value *number = NULL, *list = NULL, *local = NULL;
  distag_rref *rref = NULL;
  int64_t seen = 0;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_value_create_int64(7, &number, &err));
  CHECK_OK(distag_value_create_list(&number, 1, &list, &err));
  distag_value_release(number);
  CHECK_OK(distag_rref_create(worker, list, &rref, &err));
  distag_value_release(list);
  CHECK_OK(distag_rref_get_local(rref, &local, &err));
  for (int i = 0; i < 3; ++i) {
    distag_value *item = distag_value_get_item(local, 0);
    distag_value_release(item);
    distag_value_release(local);
    CHECK_OK(distag_value_get_int64(distag_value_get_item(local, 0), &seen, &err));
    CHECK_INT(seen, 7);
  }
  /* A reference of one's own goes on as ever, also beyond its lender. */
  distag_value_retain(local);
  distag_rref_release(rref);
  CHECK_INT(distag_value_get_count(local), 1);
  distag_value_release(local);
  CHECK_OK(distag_worker_shutdown(worker, 0, NULL, &err));
  distag_worker_release(worker);
  return check_end();
}
