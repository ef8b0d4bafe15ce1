/* A model of 64 MiB of parameters, fully sharded over 4 processes and made deferred: while it is made, in forward and
 * in backward no process ever has more than its quarter, two gathered layers and 32 MiB, the gradients among them.
 * Memory that is kept for the next allocation is left out.
 * Over sockets that is the peak of the resident size. Over lanes a process maps memory that other processes own: there
 * each page counts by its share among the processes that map it, with memory that the process keeps for a second. */
#define _GNU_SOURCE
#include <malloc.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kIsMeasured = 0 }; /* a sanitizer has memory of its own */
#else
enum { kIsMeasured = 1 };
#endif
enum { kProcesses = 4, kLayers = 16, kWidth = 1024, kBatch = 64 };

static const int64_t kLayerBytes = (int64_t)kWidth * kWidth * (int64_t)sizeof(float);
static const int64_t kExtra = INT64_C(32) << 20;
static const int64_t kKept = INT64_C(4) << 20; /* at most, of blocks that the worker keeps for the next messages */
static const int64_t kShape[] = {kWidth, kWidth};
static const double kScale = 0.03125; /* 1 / sqrt(kWidth): activations keep their size */

/* A line of a file about this process in bytes. */
static int64_t memory_in(const char *path, const char *name) {
  char line[256];
  long long kib = -1;
  FILE *file = fopen(path, "r");
  if (!CHECK(file != NULL)) return 0;
  while (kib < 0 && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, name, strlen(name)) == 0) sscanf(line + strlen(name), ": %lld", &kib);
  }
  fclose(file);
  CHECK(kib >= 0);
  return (int64_t)kib << 10;
}

static int64_t memory_of(const char *name) { return memory_in("/proc/self/status", name); }
static int64_t share(void) { return memory_in("/proc/self/smaps_rollup", "Pss"); }

/* Large blocks go back to the system when they are freed: the caches of the allocator are not measured. */
static void keep_nothing(void) { CHECK(!kIsMeasured || mallopt(M_MMAP_THRESHOLD, 1 << 17) == 1); }

/* Sets the peak to the present size. */
static void forget_peak(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  if (!CHECK(file != NULL)) return;
  CHECK(fputs("5", file) >= 0);
  CHECK(fclose(file) == 0);
}

static distag_tensor *random_layer(distag_mesh *mesh, uint64_t seed, const int64_t *shape) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  distag_tensor *tensor = NULL;
  options.init = DISTAG_INIT_RANDN;
  options.seed = seed;
  options.scale = kScale;
  CHECK_OK(distag_tensor_create_deferred(DISTAG_FLOAT32, shape, 2, &options, &tensor, &err));
  CHECK_OK(distag_tensor_mark_sharding(tensor, mesh, "('x', None)", -1, &err));
  return tensor;
}

typedef struct {
  int64_t peak, share;
} memory;

static memory memory_now(void) {
  const memory now = {memory_of("VmHWM"), share()};
  return now;
}

/* Forward and backward; every layer gets a gradient. Returns the memory after forward. */
static memory run_model(distag_mesh *mesh, distag_tensor *const *layers) {
  static const int64_t batch[] = {kBatch, kWidth};
  distag_error err = DISTAG_ERROR_INIT;
  distag_context *context = NULL;
  distag_tensor *x = random_layer(mesh, 100, batch), *loss = NULL;
  CHECK_OK(distag_context_create_joint(mesh, &context, &err));
  for (int i = 0; i < kLayers; ++i) {
    distag_tensor *linear = NULL, *active = NULL;
    CHECK_OK(distag_linear(x, layers[i], NULL, &linear, &err));
    CHECK_OK(distag_relu(linear, &active, &err));
    distag_tensor_release(linear);
    distag_tensor_release(x);
    x = active;
  }
  CHECK_OK(distag_mean(x, NULL, 0, 0, &loss, &err));
  const memory forward = memory_now();
  distag_tensor_release(x);
  CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
  distag_gradients *gradients = NULL;
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  for (int i = 0; i < kLayers; ++i) CHECK(distag_gradients_find(gradients, layers[i]) != NULL);
  distag_gradients_release(gradients);
  distag_tensor_release(loss);
  distag_context_release(context);
  return forward;
}

/* The worker's own part is that of the plain tensor, bit for bit. */
static void compare(distag_tensor *layer, uint64_t seed, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *numbers = NULL, *whole = NULL, *part = NULL;
  CHECK_OK(distag_randn(seed, DISTAG_FLOAT32, kShape, 2, &numbers, &err));
  CHECK_OK(distag_mul_scalar(numbers, kScale, &whole, &err));
  CHECK_OK(distag_tensor_to_local(layer, NULL, &part, &err));
  const size_t size = (size_t)kLayerBytes / kProcesses;
  CHECK_INT(distag_tensor_get_size(part), size);
  const char *all = distag_tensor_get_data(whole), *own = distag_tensor_get_data(part);
  CHECK(all != NULL && own != NULL && memcmp(own, all + size * (size_t)rank, size) == 0);
  distag_tensor_release(numbers);
  distag_tensor_release(whole);
  distag_tensor_release(part);
}

static int run(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  static const char *const names[] = {"x"};
  const int64_t shape[] = {-1};
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = NULL;
  distag_mesh *mesh = NULL;
  distag_tensor *layers[kLayers];
  const int has_lanes = *(const int *)data;
  alarm(500);
  keep_nothing();
  distag_worker_options options = group_options(rank, count, rendezvous);
  options.no_lane = !has_lanes;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  if (!CHECK_OK(distag_worker_start(worker, 60 * DISTAG_SECOND, &err))) return 1;
  if (!CHECK_OK(distag_mesh_create(worker, NULL, 0, shape, names, 1, NULL, &mesh, &err))) return 1;
  forget_peak();
  const memory before = {memory_of("VmRSS"), share()};
  for (int i = 0; i < kLayers; ++i) {
    layers[i] = random_layer(mesh, (uint64_t)i, kShape);
    CHECK_OK(distag_tensor_set_requires_grad(layers[i], 1, &err));
  }
  const memory made = memory_now(), forward = run_model(mesh, layers), ran = memory_now();
  printf(
      "rank %d, %s: KiB at most (share): %lld (%lld) while the parameters were made, %lld (%lld) with forward, "
      "%lld (%lld) with backward\n",
      (int)rank, has_lanes ? "lanes" : "sockets", (long long)(made.peak - before.peak) >> 10,
      (long long)(made.share - before.share) >> 10, (long long)(forward.peak - before.peak) >> 10,
      (long long)(forward.share - before.share) >> 10, (long long)(ran.peak - before.peak) >> 10,
      (long long)(ran.share - before.share) >> 10);
  fflush(stdout);
  const int64_t whole = kLayers * kLayerBytes, quarter = whole / kProcesses;
  if (kIsMeasured && has_lanes) {
    /* Less would measure nothing. Not the whole quarter: the share of a library falls when another process maps it. */
    CHECK(made.share - before.share >= quarter / 2);
    CHECK(forward.share - before.share <= quarter + 2 * kLayerBytes + kExtra);
    CHECK(ran.share - before.share <= quarter + 2 * kLayerBytes + kExtra + kKept);
  } else if (kIsMeasured) {
    CHECK(made.peak - before.peak >= quarter);
    CHECK(made.peak - before.peak <= quarter + 2 * kLayerBytes);
    CHECK(forward.peak - before.peak <= quarter + 2 * kLayerBytes + kExtra);
    CHECK(ran.peak - before.peak <= quarter + 2 * kLayerBytes + kExtra + kKept);
  }
  for (int i = 0; i < kLayers; ++i) {
    compare(layers[i], (uint64_t)i, rank);
    distag_tensor_release(layers[i]);
  }
  distag_mesh_release(mesh);
  CHECK_OK(distag_worker_shutdown(worker, 60 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  return check_end();
}

int main(void) {
  for (int has_lanes = 0; has_lanes < 2; ++has_lanes) {
    processes group;
    CHECK_INT(processes_start(&group, kProcesses, run, &has_lanes), 0);
    CHECK_INT(processes_end(&group, -1), 0);
  }
  return check_end();
}
