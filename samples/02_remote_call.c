/* Calls between two processes: a function of the other worker, built-in ops side by side, and an error that comes back.
 *
 *   cc 02_remote_call.c $(pkg-config --cflags --libs distag) -o remote_call && distag run -n 2 ./remote_call */
#include <distag.h>
#include <stdio.h>

enum { kDivisionByZero = DISTAG_E_USER + 1, kSquares = 5 };

static distag_status greet(void *own_name, distag_invocation *invocation, distag_error *err) {
  const char *name = NULL;
  distag_value *answer = NULL;
  char text[128];
  if (distag_value_get_text(distag_invocation_get_arg(invocation, 0), &name, err)) return err->code;
  snprintf(text, sizeof text, "hello %s, says %s", name, (const char *)own_name);
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
  if (err->code == DISTAG_OK && b == 0) return distag_error_set(err, kDivisionByZero, "division by zero");
  distag_value_create_float64(a / b, &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  return err->code;
}

/* Built-in ops can be called without being registered. All calls go out before the first answer is awaited. */
static void call_squares(distag_worker *worker, distag_error *err) {
  distag_future *futures[kSquares] = {NULL};
  for (int i = 0; i < kSquares; ++i) {
    distag_tensor *x = NULL;
    distag_full(i, DISTAG_FLOAT32, NULL, 0, &x, err);
    distag_value *args[] = {distag_tensor_as_value(x), distag_tensor_as_value(x)};
    distag_call_async(worker, NULL, "server", "mul", args, 2, NULL, &futures[i], err);
    distag_tensor_release(x); /* the call keeps the tensor for as long as it needs it */
  }
  distag_wait_all(futures, kSquares, DISTAG_FOREVER, err);
  for (int i = 0; i < kSquares; ++i) {
    distag_value *answer = NULL; /* lent by the future */
    distag_tensor *square = NULL;
    double item = 0;
    distag_future_get_value(futures[i], &answer, err);
    distag_value_get_tensor(answer, &square, err);
    distag_tensor_get_item(square, &item, err);
    printf("%s%g%s", i == 0 ? "squares    " : " ", item, i == kSquares - 1 ? "\n" : "");
    distag_future_release(futures[i]);
  }
}

static void run_client(distag_worker *worker, distag_error *err) {
  distag_value *name = NULL, *answer = NULL, *args[2] = {NULL};
  distag_error failure = DISTAG_ERROR_INIT;
  const char *text = NULL;
  distag_value_create_text("client", &name, err);
  distag_call(worker, NULL, "server", "greet", &name, 1, NULL, &answer, err);
  distag_value_get_text(answer, &text, err);
  if (text != NULL) printf("greet      %s\n", text);
  call_squares(worker, err);
  /* A call fails as its function does: the error says where it arose, and whether the function may have run. */
  distag_value_create_float64(1, &args[0], err);
  distag_value_create_float64(0, &args[1], err);
  distag_call(worker, NULL, "server", "divide", args, 2, NULL, NULL, &failure);
  printf("divide     status %d, rank %d, %s: %s\n", (int)failure.code, (int)failure.origin_rank,
         failure.flags & DISTAG_ERROR_MAY_HAVE_RUN ? "it ran" : "it did not run", failure.message);
  distag_value *const made[] = {name, answer, args[0], args[1]};
  for (int i = 0; i < 4; ++i) distag_value_release(made[i]);
}

int main(void) {
  distag_environment place = DISTAG_ENVIRONMENT_INIT;
  distag_error err = DISTAG_ERROR_INIT;
  distag_get_environment(&place, &err); /* from distag run, torchrun, srun ... */
  char *name = place.rank == 1 ? "server" : "client";
  distag_worker_options options = {.struct_size = sizeof options, .name = name}; /* the rest: from there, too */
  distag_worker *worker = NULL;
  distag_worker_create(&options, &worker, &err);
  distag_worker_register(worker, "greet", greet, name, NULL, NULL, &err);
  distag_worker_register(worker, "divide", divide, NULL, NULL, NULL, &err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  if (distag_worker_get_rank(worker) == 0) run_client(worker, &err);
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err); /* serves until the other worker shuts down too */
  distag_worker_release(worker);
  return err.code == DISTAG_OK ? 0 : (fprintf(stderr, "%s: %s\n", name, err.message), 1);
}
