#include <distag.h>
#include <stdio.h>
#include <string.h>

/* A product, and a call to itself by a worker of its own group: math, threads and messages are there. 0: right. */
static int work(void) {
  const float data[] = {1, 2, 3, 4};
  const int64_t shape[] = {2, 2};
  float seen[4] = {0, 0, 0, 0};
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  distag_tensor *x = NULL, *y = NULL, *z = NULL;
  distag_value *arg, *answer = NULL;
  options.world_size = 1;
  options.name = "consumer";
  options.rendezvous = "inproc://consumer";
  distag_tensor_create(data, sizeof data, DISTAG_FLOAT32, shape, 2, &x, &err);
  distag_matmul(x, x, &y, &err);
  distag_worker_create(&options, &worker, &err);
  distag_worker_start(worker, 120 * DISTAG_SECOND, &err);
  arg = distag_tensor_as_value(y);
  distag_call(worker, NULL, "consumer", "neg", &arg, 1, NULL, &answer, &err);
  distag_value_get_tensor(answer, &z, &err);
  distag_tensor_copy_data(z, seen, sizeof seen, &err);
  distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err);
  distag_value_release(answer);
  distag_tensor_release(y);
  distag_tensor_release(x);
  distag_worker_release(worker);
  if (err.code != DISTAG_OK) printf("%s\n", err.message);
  return err.code != DISTAG_OK || seen[0] != -7 || seen[3] != -22;
}

/* The installed header and library are of one version, and the library works. */
int main(void) {
  char version[32];
  snprintf(version, sizeof(version), "%d.%d.%d", DISTAG_VERSION_MAJOR, DISTAG_VERSION_MINOR, DISTAG_VERSION_PATCH);
  printf("header %s, library %s\n", version, distag_get_version());
  return strcmp(version, distag_get_version()) != 0 || work();
}
