/* Load, use, unload, 100 times, by dlopen and the function table alone: no thread, descriptor, mapping or memory stays.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/resident.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kIsMeasured = 0 }; /* a sanitizer has memory of its own */
#else
enum { kIsMeasured = 1 };
#endif
enum { kRounds = 100, kLarge = 1 << 20 };

static int count_entries(const char *path) {
  DIR *folder = opendir(path);
  int count = 0;
  while (folder != NULL && readdir(folder) != NULL) ++count;
  if (folder != NULL) closedir(folder);
  return count;
}

static int count_mappings(const char *name) {
  char line[1024];
  int count = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) count += strstr(line, name) != NULL;
  if (maps != NULL) fclose(maps);
  return count;
}

static distag_status answer(void *user_data, distag_invocation *invocation, distag_error *err) {
  const distag_api *api = (const distag_api *)user_data;
  distag_tensor *x = NULL, *y = NULL;
  api->invocation_get_tensor(invocation, 0, &x, err);
  api->op_exp(x, &y, err);
  api->invocation_return(invocation, api->tensor_as_value(y), err);
  api->tensor_release(y);
  return err->code;
}

/* A worker that calls itself in a context, and runs a backward pass. */
static void use(const distag_api *api, const char *rendezvous, uint32_t executor) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = NULL;
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  distag_tensor *x = NULL, *y = NULL;
  distag_value *result = NULL, *args[1];
  double item = 0;

  options.world_size = 1;
  options.rendezvous = rendezvous;
  options.executor = executor;
  api->worker_create(&options, &worker, &err);
  api->worker_register(worker, "answer", answer, (void *)(uintptr_t)api, NULL, NULL, &err);
  api->worker_start(worker, 120 * DISTAG_SECOND, &err);
  api->context_create(worker, &context, &err);
  api->op_full(2, DISTAG_FLOAT64, NULL, 0, &x, &err);
  api->tensor_set_requires_grad(x, 1, &err);
  args[0] = api->tensor_as_value(x);
  api->call(worker, context, "worker0", "answer", args, 1, NULL, &result, &err);
  api->value_get_tensor(result, &y, &err);
  api->backward(context, &y, 1, NULL, &err);
  api->get_gradients(context, &gradients, &err);
  api->tensor_get_item(api->gradients_find(gradients, x), &item, &err);
  if (err.code == DISTAG_OK) CHECK_NEAR(item, exp(2));
  api->gradients_release(gradients);
  api->value_release(result);
  api->tensor_release(x);
  api->context_release(context);
  api->worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err);
  api->worker_release(worker);
  if (err.code != DISTAG_OK) {
    ++check_failures;
    fprintf(stderr, "%s: %d: %s\n", rendezvous, (int)err.code, err.message);
  }
  CHECK_INT(api->get_handle_count(), 0);
}

/* Memory of a large tensor is kept for the next one when it is freed. */
static void leave_memory(const distag_api *api) {
  const int64_t count = kLarge;
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = NULL;
  api->op_full(2, DISTAG_FLOAT64, &count, 1, &x, &err);
  CHECK_INT(err.code, DISTAG_OK);
  api->tensor_release(x);
}

/* No handler of forks stays either. */
static void fork_once(void) {
  int status = -1;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_INT(status, 0);
}

static void one_round(int round, const char *file_rendezvous) {
  void *library = dlopen(DISTAG_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  const distag_api *(*get_api)(uint32_t) = NULL;
  if (!CHECK(library != NULL)) return;
  *(void **)&get_api = dlsym(library, "distag_get_api"); /* as POSIX says it is done */
  CHECK(get_api(DISTAG_ABI_MAJOR + 1) == NULL);
  use(get_api(DISTAG_ABI_MAJOR), round % 2 == 0 ? "inproc://unload" : file_rendezvous,
      round % 3 == 0 ? DISTAG_EXECUTOR_HOST : DISTAG_EXECUTOR_POOL);
  leave_memory(get_api(DISTAG_ABI_MAJOR));
  CHECK_INT(dlclose(library), 0);
  if (round % 10 == 0) fork_once();
}

/* A thread that was joined may be listed for a moment longer. */
static int count_threads(int expected) {
  int count = 0;
  for (int look = 0; look < 1000000; ++look) {
    count = count_entries("/proc/self/task");
    if (count == expected) break;
    sched_yield();
  }
  return count;
}

static void remove_folder(const char *path) {
  char entry_path[512];
  struct dirent *entry;
  DIR *folder = opendir(path);
  while (folder != NULL && (entry = readdir(folder)) != NULL) {
    snprintf(entry_path, sizeof entry_path, "%s/%s", path, entry->d_name);
    unlink(entry_path);
  }
  if (folder != NULL) closedir(folder);
  rmdir(path);
}

int main(void) {
  char folder[] = "/tmp/capi-unload-XXXXXX"; /* its name must not look like a mapping of the library */
  char rendezvous[64];
  int threads = 0, descriptors = 0;
  int64_t resident = 0;

  setenv("OPENBLAS_NUM_THREADS", "1", 1); /* its threads are its own affair */
  if (!CHECK(mkdtemp(folder) != NULL)) return 1;
  snprintf(rendezvous, sizeof rendezvous, "file://%s", folder);
  CHECK_INT(count_mappings("libdistag"), 0); /* this program is not linked with it */
  for (int round = 0; round < kRounds && check_failures == 0; ++round) {
    one_round(round, rendezvous);
    remove_folder(folder);
    CHECK_INT(mkdir(folder, 0700), 0);
    if (round < 2) { /* what the system's libraries keep, they keep from the first time on */
      threads = count_entries("/proc/self/task");
      descriptors = count_entries("/proc/self/fd");
      resident = resident_bytes();
    }
    CHECK_INT(count_threads(threads), threads);
    CHECK_INT(count_entries("/proc/self/fd"), descriptors);
    CHECK_INT(count_mappings("libdistag"), 0);
  }
  /* Less than a tenth of what was left. */
  if (kIsMeasured) CHECK(resident_bytes() - resident < kRounds / 10 * (int64_t)kLarge * 8);
  remove_folder(folder);
  return check_failures == 0 ? 0 : 1;
}
