/* Uses distag without linking it, as a plugin or a language binding does: dlopen, one symbol, a table of functions.
 *
 *   cc 05_plugin_dlopen.c $(pkg-config --cflags distag) -ldl -o plugin_dlopen && ./plugin_dlopen libdistag.so.0 */
#include <distag.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The table of a library; NULL if it is not distag, or has another ABI. */
static const distag_api *load_api(void *library) {
  const distag_api *(*get_api)(uint32_t abi_major);
  void *symbol = dlsym(library, "distag_get_api");

  if (symbol == NULL) return NULL;
  memcpy(&get_api, &symbol, sizeof get_api); /* C has no cast from an object pointer to a function pointer */
  return get_api(DISTAG_ABI_MAJOR);
}

/* d sum(x * x) / dx, within this process. */
static void differentiate(const distag_api *distag, distag_error *err) {
  const double data[3] = {1, 2, 3};
  const int64_t shape[1] = {3};
  double gradient[3] = {0};
  distag_context *context = NULL;
  distag_tensor *x = NULL, *square = NULL, *sum = NULL;
  distag_gradients *gradients = NULL;

  distag->context_create(NULL, &context, err);
  distag->tensor_create(data, sizeof data, DISTAG_FLOAT64, shape, 1, &x, err);
  distag->tensor_set_requires_grad(x, 1, err);
  distag->op_mul(x, x, &square, err);
  distag->op_sum(square, NULL, 0, 0, &sum, err);
  distag->backward(context, &sum, 1, NULL, err);
  distag->get_gradients(context, &gradients, err);
  distag->tensor_copy_data(distag->gradients_find(gradients, x), gradient, sizeof gradient, err);
  if (err->code == DISTAG_OK) printf("gradient   %g %g %g\n", gradient[0], gradient[1], gradient[2]);

  distag->gradients_release(gradients);
  distag->tensor_release(sum);
  distag->tensor_release(square);
  distag->tensor_release(x);
  distag->context_release(context);
}

/* A group of one worker, which calls itself: threads and sockets come up and go again. */
static void call_oneself(const distag_api *distag, distag_error *err) {
  const double number = 42;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  distag_tensor *x = NULL, *y = NULL;
  distag_value *arg, *answer = NULL;
  double item = 0;

  options.world_size = 1;
  options.name = "plugin";
  options.rendezvous = "inproc://plugin";
  distag->worker_create(&options, &worker, err);
  distag->worker_start(worker, 10 * DISTAG_SECOND, err);
  distag->tensor_create(&number, sizeof number, DISTAG_FLOAT64, NULL, 0, &x, err);
  arg = distag->tensor_as_value(x);
  distag->call(worker, NULL, "plugin", "neg", &arg, 1, NULL, &answer, err);
  distag->value_get_tensor(answer, &y, err);
  distag->tensor_get_item(y, &item, err);
  if (err->code == DISTAG_OK) printf("neg(42)    %g\n", item);

  distag->value_release(answer);
  distag->tensor_release(x);
  distag->worker_shutdown(worker, 10 * DISTAG_SECOND, NULL, err); /* before the library may be unloaded */
  distag->worker_release(worker);
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : "libdistag.so.0";
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  distag_error err = DISTAG_ERROR_INIT;
  const distag_api *distag;
  int failed;

  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  distag = load_api(library);
  if (distag == NULL) return fprintf(stderr, "%s is no distag of ABI %d\n", path, DISTAG_ABI_MAJOR), 1;
  printf("library    distag %s, functions in the table: %s\n", distag->get_version(),
         DISTAG_API_HAS(distag, backward) ? "as expected" : "too few");

  differentiate(distag, &err);
  call_oneself(distag, &err);
  failed = err.code != DISTAG_OK;
  if (failed) fprintf(stderr, "%s: %s\n", distag->status_get_name(err.code), err.message);
  printf("handles    %d left\n", (int)distag->get_handle_count());
  if (dlclose(library) != 0) return fprintf(stderr, "%s\n", dlerror()), 1;
  printf("unloaded\n");
  return failed;
}
