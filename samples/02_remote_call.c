/* Calls between two processes: functions, built-in ops, calls side by side, and an error that comes back.
 *
 *   cc 02_remote_call.c $(pkg-config --cflags --libs distag) -o remote_call
 *
 * The program forks before it uses distag. The child is the worker "server", the parent the worker "client"; they meet
 * in an empty directory. Started by hand on two terminals they would do the same. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <distag.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kDivisionByZero = DISTAG_E_USER + 1, kSquares = 5 };

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

static distag_worker *create_worker(const char *name, int32_t rank, distag_error *err) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  char rendezvous[64];

  snprintf(rendezvous, sizeof rendezvous, "file://%s", directory);
  options.name = name;
  options.rank = rank;
  options.world_size = 2;
  options.rendezvous = rendezvous;
  distag_worker_create(&options, &worker, err);
  return worker;
}

static int report(const char *who, const distag_error *err) {
  if (err->code == DISTAG_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", who, distag_status_get_name(err->code), err->message);
  return 1;
}

/* ---- server ---- */

static distag_status greet(void *user_data, distag_invocation *invocation, distag_error *err) {
  const char *name = NULL;
  distag_value *answer = NULL;
  char text[128];
  (void)user_data;

  if (distag_value_get_text(distag_invocation_get_arg(invocation, 0), &name, err)) return err->code;
  snprintf(text, sizeof text, "hello %s, says %s", name,
           distag_worker_get_name(distag_invocation_get_worker(invocation)));
  distag_value_create_text(text, &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  return err->code;
}

static distag_status divide(void *user_data, distag_invocation *invocation, distag_error *err) {
  double a = 0, b = 0;
  distag_value *answer = NULL;
  (void)user_data;

  distag_value_get_float64(distag_invocation_get_arg(invocation, 0), &a, err);
  distag_value_get_float64(distag_invocation_get_arg(invocation, 1), &b, err);
  if (err->code != DISTAG_OK) return err->code;
  if (b == 0) return distag_error_set(err, kDivisionByZero, "division by zero");
  distag_value_create_float64(a / b, &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  return err->code;
}

/* Offers its functions, then serves until the client shuts down too. */
static int run_server(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = create_worker("server", 1, &err);

  distag_worker_register(worker, "greet", greet, NULL, NULL, NULL, &err);
  distag_worker_register(worker, "divide", divide, NULL, NULL, NULL, &err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err);
  distag_worker_release(worker);
  return report("server", &err);
}

/* ---- client ---- */

static void call_greet(distag_worker *worker, distag_error *err) {
  distag_value *name = NULL, *answer = NULL;
  const char *text = "";

  distag_value_create_text("client", &name, err);
  distag_call(worker, NULL, "server", "greet", &name, 1, NULL, &answer, err);
  distag_value_get_text(answer, &text, err);
  printf("greet      %s\n", err->code == DISTAG_OK ? text : "failed");
  distag_value_release(answer);
  distag_value_release(name);
}

/* Every built-in op can be called too. One tensor goes out per call, all calls before the first answer is awaited. */
static void call_squares(distag_worker *worker, distag_error *err) {
  distag_future *futures[kSquares] = {NULL};
  int i;

  for (i = 0; i < kSquares; ++i) {
    const float number = (float)i;
    distag_tensor *x = NULL;
    distag_value *args[2];
    distag_tensor_create(&number, sizeof number, DISTAG_FLOAT32, NULL, 0, &x, err);
    args[0] = args[1] = distag_tensor_as_value(x);
    distag_call_async(worker, NULL, "server", "mul", args, 2, NULL, &futures[i], err);
    distag_tensor_release(x); /* the call keeps what it needs */
  }
  distag_wait_all(futures, kSquares, DISTAG_FOREVER, err);
  printf("squares   ");
  for (i = 0; i < kSquares; ++i) {
    distag_value *answer = NULL;
    distag_tensor *square = NULL;
    double item = 0;
    distag_future_get_value(futures[i], &answer, err);
    distag_value_get_tensor(answer, &square, err);
    distag_tensor_get_item(square, &item, err);
    printf(" %g", item);
    distag_future_release(futures[i]);
  }
  printf("\n");
}

/* The failure of a function is the failure of its call. It says where it arose, and whether the function can have run.
 */
static void call_divide_by_zero(distag_worker *worker, distag_error *err) {
  distag_value *args[2] = {NULL, NULL}, *answer = NULL;
  distag_error failure = DISTAG_ERROR_INIT;

  distag_value_create_float64(1, &args[0], err);
  distag_value_create_float64(0, &args[1], err);
  distag_call(worker, NULL, "server", "divide", args, 2, NULL, &answer, &failure);
  printf("divide     status %d, rank %d, %s: %s\n", (int)failure.code, (int)failure.origin_rank,
         failure.flags & DISTAG_ERROR_MAY_HAVE_RUN ? "it ran" : "it did not run", failure.message);
  distag_value_release(answer);
  distag_value_release(args[1]);
  distag_value_release(args[0]);
}

static int run_client(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = create_worker("client", 0, &err);

  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  call_greet(worker, &err);
  call_squares(worker, &err);
  call_divide_by_zero(worker, &err);
  distag_worker_shutdown(worker, 30 * DISTAG_SECOND, NULL, &err);
  distag_worker_release(worker);
  return report("client", &err);
}

int main(void) {
  int server_status = 1;

  setvbuf(stdout, NULL, _IOLBF, 0);
  if (mkdtemp(directory) == NULL) return perror("mkdtemp"), 1;
  child = fork();
  if (child == 0) return run_server();
  atexit(clean_up);
  if (child < 0) return perror("fork"), 1;
  if (run_client()) return 1;
  waitpid(child, &server_status, 0);
  child = -1;
  return server_status != 0;
}
