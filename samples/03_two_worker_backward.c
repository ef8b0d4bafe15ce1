/* A backward pass through two processes: t3 = add(t1, t2) on the other worker, t5 = t3 * t4 here, loss = sum(t5).
 *
 *   cc 03_two_worker_backward.c $(pkg-config --cflags --libs distag) -o two_worker_backward
 *
 * The program forks before it uses distag: the child is the worker "helper", the parent the worker "trainer". */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <distag.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/distag-XXXXXX"; /* where the two meet */
static pid_t child = -1;

/* Whatever way the parent ends: no process and no file stays behind. */
static void clean_up(void) {
  DIR *entries = opendir(directory);
  struct dirent *entry;
  char path[sizeof directory + sizeof entry->d_name + 1];

  if (child > 0 && kill(child, SIGKILL) == 0) waitpid(child, NULL, 0);
  while (entries != NULL && (entry = readdir(entries)) != NULL) {
    snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    unlink(path);
  }
  if (entries != NULL) closedir(entries);
  rmdir(directory);
}

static distag_worker *start_worker(const char *name, int32_t rank, distag_error *err) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  char rendezvous[64];

  snprintf(rendezvous, sizeof rendezvous, "file://%s", directory);
  options.name = name;
  options.rank = rank;
  options.world_size = 2;
  options.rendezvous = rendezvous;
  distag_worker_create(&options, &worker, err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, err);
  return worker;
}

static int report(const char *who, const distag_error *err) {
  if (err->code == DISTAG_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", who, distag_status_get_name(err->code), err->message);
  return 1;
}

/* Built-in ops are there without being registered, so all that is left to do is to serve until the trainer is done. */
static int run_helper(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = start_worker("helper", 1, &err);

  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err);
  distag_worker_release(worker);
  return report("helper", &err);
}

static distag_tensor *create_leaf(float first, distag_error *err) {
  const float data[4] = {first, first + 1, first + 2, first + 3};
  const int64_t shape[2] = {2, 2};
  distag_tensor *tensor = NULL;
  distag_tensor_create(data, sizeof data, DISTAG_FLOAT32, shape, 2, &tensor, err);
  distag_tensor_set_requires_grad(tensor, 1, err);
  return tensor;
}

static void print_gradient(const char *name, distag_gradients *gradients, distag_tensor *leaf, distag_error *err) {
  float data[4] = {0};
  distag_tensor_copy_data(distag_gradients_find(gradients, leaf), data, sizeof data, err);
  if (err->code == DISTAG_OK) printf("d loss / d %s = [%g %g] [%g %g]\n", name, data[0], data[1], data[2], data[3]);
}

static void train(distag_worker *worker, distag_error *err) {
  distag_tensor *t1 = create_leaf(1, err), *t2 = create_leaf(10, err), *t4 = create_leaf(0.5f, err);
  distag_value *args[2], *answer = NULL;
  distag_tensor *t3 = NULL, *t5 = NULL, *loss = NULL;
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  double value = 0;

  /* Calls that name a context are recorded in it, on both sides. */
  distag_context_create(worker, &context, err);
  args[0] = distag_tensor_as_value(t1);
  args[1] = distag_tensor_as_value(t2);
  distag_call(worker, context, "helper", "add", args, 2, NULL, &answer, err);
  distag_value_get_tensor(answer, &t3, err); /* lent: lives as long as the answer */
  distag_mul(t3, t4, &t5, err);
  distag_sum(t5, NULL, 0, 0, &loss, err);
  distag_tensor_get_item(loss, &value, err);

  /* The pass runs through the helper and back. Gradients stay where their leaves are: all three are here. */
  distag_backward(context, &loss, 1, NULL, err);
  distag_get_gradients(context, &gradients, err);
  if (err->code == DISTAG_OK) printf("loss = %g\n", value);
  print_gradient("t1", gradients, t1, err);
  print_gradient("t2", gradients, t2, err);
  print_gradient("t4", gradients, t4, err);

  distag_gradients_release(gradients);
  distag_context_release(context); /* ends it, here and on the helper */
  distag_tensor_release(loss);
  distag_tensor_release(t5);
  distag_value_release(answer);
  distag_tensor_release(t4);
  distag_tensor_release(t2);
  distag_tensor_release(t1);
}

static int run_trainer(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = start_worker("trainer", 0, &err);

  train(worker, &err);
  distag_worker_shutdown(worker, 30 * DISTAG_SECOND, NULL, &err);
  distag_worker_release(worker);
  return report("trainer", &err);
}

int main(void) {
  int helper_status = 1;

  if (mkdtemp(directory) == NULL) return perror("mkdtemp"), 1;
  child = fork();
  if (child == 0) return run_helper();
  atexit(clean_up);
  if (child < 0) return perror("fork"), 1;
  if (run_trainer()) return 1;
  waitpid(child, &helper_status, 0);
  child = -1;
  return helper_status != 0;
}
