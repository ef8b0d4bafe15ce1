/* A training has the same bits in each run, whatever number of threads its workers have; and whatever number OpenBLAS
 * has, where its own products keep their bits then. They do not on its Haswell and Zen cores (0.3.21). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kWorkers = 2, kSteps = 3, kBatch = 64, kParameters = 5, kMostItems = 512 * 512 };

static distag_error err = DISTAG_ERROR_INIT;

/* Parameters of w0: kernels of a convolution, the weight and the bias of a layer. Of w1: those of the next layer. */
static const int64_t kShapes[kParameters][4] = {{8, 3, 3, 3}, {512, 512}, {512}, {384, 512}, {384}};
static const size_t kDims[kParameters] = {4, 2, 1, 2, 1};
static const int kFirstOfOther = 3;

typedef struct training {
  distag_worker *workers[kWorkers];
  distag_tensor *parameters[kParameters];
} training;

static distag_tensor *make_random(uint64_t seed, double scale, const int64_t *shape, size_t dims) {
  distag_tensor *random = NULL, *scaled = NULL;
  CHECK_OK(distag_randn(seed, DISTAG_FLOAT32, shape, dims, &random, &err));
  CHECK_OK(distag_mul_scalar(random, scale, &scaled, &err));
  distag_tensor_release(random);
  return scaled;
}

static distag_status forward_there(void *own, distag_invocation *invocation, distag_error *error) {
  const training *const self = own;
  distag_tensor *x = NULL, *sum = NULL, *y = NULL;
  distag_invocation_get_tensor(invocation, 0, &x, error);
  distag_linear(x, self->parameters[kFirstOfOther], self->parameters[kFirstOfOther + 1], &sum, error);
  distag_tanh(sum, &y, error);
  distag_invocation_return(invocation, distag_tensor_as_value(y), error);
  distag_tensor_release(sum);
  distag_tensor_release(y);
  return error->code;
}

static distag_status parameters_there(void *own, distag_invocation *invocation, distag_error *error) {
  const training *const self = own;
  int64_t index = 0;
  distag_value_get_int64(distag_invocation_get_arg(invocation, 0), &index, error);
  distag_invocation_return(invocation, distag_tensor_as_value(self->parameters[index]), error);
  return error->code;
}

static void start(training *self, const char *rendezvous, uint32_t thread_count) {
  for (int i = 0; i < kParameters; ++i) {
    self->parameters[i] = make_random((uint64_t)(10 + i), 0.05, kShapes[i], kDims[i]);
    CHECK_OK(distag_tensor_set_requires_grad(self->parameters[i], 1, &err));
  }
  for (int i = 0; i < kWorkers; ++i) {
    distag_worker_options options = group_options(i, kWorkers, rendezvous);
    options.thread_count = thread_count;
    CHECK_OK(distag_worker_create(&options, &self->workers[i], &err));
    CHECK_OK(distag_worker_register(self->workers[i], "forward", forward_there, self, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(self->workers[i], "parameter", parameters_there, self, NULL, NULL, &err));
  }
  CHECK_INT(group_start(self->workers, kWorkers), 0);
}

static void end(training *self) {
  CHECK_INT(group_shutdown(self->workers, kWorkers), 0);
  for (int i = 0; i < kWorkers; ++i) distag_worker_release(self->workers[i]);
  for (int i = 0; i < kParameters; ++i) distag_tensor_release(self->parameters[i]);
}

static distag_optimizer *make_optimizer(const training *self) {
  distag_value *all[kParameters];
  distag_rref *rrefs[kParameters] = {NULL};
  distag_optimizer *optimizer = NULL;
  for (int i = 0; i < kParameters; ++i) {
    all[i] = distag_tensor_as_value(self->parameters[i]);
    if (i < kFirstOfOther) continue;
    distag_value *index = NULL;
    CHECK_OK(distag_value_create_int64(i, &index, &err));
    CHECK_OK(distag_remote(self->workers[0], NULL, "w1", "parameter", &index, 1, NULL, &rrefs[i], &err));
    distag_value_release(index);
    all[i] = distag_rref_as_value(rrefs[i]);
  }
  CHECK_OK(distag_optimizer_create(self->workers[0], "adam", all, kParameters, &optimizer, &err));
  for (int i = kFirstOfOther; i < kParameters; ++i) distag_rref_release(rrefs[i]);
  return optimizer;
}

/* Convolution, softmax, products, a call, a loss: these ops have kernels in parts, or sums. */
static void step(const training *self, distag_optimizer *optimizer, distag_tensor *images, distag_tensor *classes) {
  const int64_t one[2] = {1, 1}, flat[2] = {kBatch, 512};
  distag_context *context = NULL;
  distag_value *answer = NULL;
  distag_tensor *convolved = NULL, *rows = NULL, *sum = NULL, *positive = NULL, *far = NULL;
  distag_tensor *loss = NULL;
  CHECK_OK(distag_context_create(self->workers[0], &context, &err));
  CHECK_OK(distag_conv2d(images, self->parameters[0], NULL, one, one, &convolved, &err));
  CHECK_OK(distag_reshape(convolved, flat, 2, &rows, &err));
  CHECK_OK(distag_linear(rows, self->parameters[1], self->parameters[2], &sum, &err));
  CHECK_OK(distag_softmax(sum, 1, &positive, &err));
  distag_value *const args[1] = {distag_tensor_as_value(positive)};
  CHECK_OK(distag_call(self->workers[0], context, "w1", "forward", args, 1, NULL, &answer, &err));
  CHECK_OK(distag_value_get_tensor(answer, &far, &err));
  CHECK_OK(distag_cross_entropy(far, classes, &loss, &err));
  CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
  CHECK_OK(distag_optimizer_step(optimizer, context, NULL, &err));
  distag_tensor *const made[] = {convolved, rows, sum, positive, loss};
  for (int i = 0; i < 5; ++i) distag_tensor_release(made[i]);
  distag_value_release(answer);
  distag_context_release(context);
}

/* Trains, and gives the parameters after it. */
static void train(const char *rendezvous, uint32_t thread_count, float (*results)[kMostItems]) {
  const int64_t shape[4] = {kBatch, 3, 8, 8}, batch = kBatch;
  training self = {{NULL}, {NULL}};
  int64_t labels[kBatch];
  distag_tensor *classes = NULL;
  for (int i = 0; i < kBatch; ++i) labels[i] = i * 7 % 384;
  start(&self, rendezvous, thread_count);
  distag_tensor *images = make_random(1, 1, shape, 4);
  CHECK_OK(distag_tensor_create(labels, sizeof labels, DISTAG_INT64, &batch, 1, &classes, &err));
  distag_optimizer *optimizer = make_optimizer(&self);
  for (int i = 0; i < kSteps; ++i) step(&self, optimizer, images, classes);
  for (int i = 0; i < kParameters; ++i) {
    CHECK_OK(distag_tensor_copy_data(self.parameters[i], results[i], sizeof results[i], &err));
  }
  distag_optimizer_release(optimizer);
  distag_tensor_release(images);
  distag_tensor_release(classes);
  end(&self);
}

/* Whether a product of OpenBLAS itself has the same bits with one and with two of its threads. */
static int blas_keeps_bits(void *openblas, void (*set_blas_threads)(int)) {
  enum { kSize = 128 };
  static float a[kSize * kSize], b[kSize * kSize], products[2][kSize * kSize];
  void (*const multiply)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                         int) = (void (*)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                                          float, float *, int))dlsym(openblas, "cblas_sgemm");
  if (!CHECK(multiply != NULL)) return 1;
  for (int i = 0; i < kSize * kSize; ++i) {
    a[i] = (float)(i * 37 % 1009) / 1009 - 0.5f;
    b[i] = (float)(i * 59 % 1013) / 1013 - 0.5f;
  }
  for (int threads = 1; threads <= 2; ++threads) { /* row-major, not transposed */
    set_blas_threads(threads);
    multiply(101, 111, 111, kSize, kSize, kSize, 1, a, kSize, b, kSize, 0, products[threads - 1], kSize);
  }
  return memcmp(products[0], products[1], sizeof products[0]) == 0;
}

int main(void) {
  static float first[kParameters][kMostItems], again[kParameters][kMostItems];
  static const struct {
    uint32_t workers;
    int blas;
  } kThreads[] = {{1, 1}, {1, 1}, {4, 1}, {1, 2}, {4, 2}};
  char rendezvous[64];
  void *const openblas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD); /* that which distag brings along */
  if (!CHECK(openblas != NULL)) return check_end();
  void (*const set_blas_threads)(int) = (void (*)(int))dlsym(openblas, "openblas_set_num_threads");
  if (!CHECK(set_blas_threads != NULL)) return check_end();
  const int keeps_bits = blas_keeps_bits(openblas, set_blas_threads);
  if (!keeps_bits) printf("OpenBLAS's own products change with the number of its threads: one is tried\n");
  for (size_t i = 0; i < sizeof kThreads / sizeof kThreads[0]; ++i) {
    if (kThreads[i].blas > 1 && !keeps_bits) continue;
    snprintf(rendezvous, sizeof rendezvous, "inproc://same-bits-%zu", i);
    set_blas_threads(kThreads[i].blas);
    train(rendezvous, kThreads[i].workers, i == 0 ? first : again);
    for (int p = 0; i > 0 && p < kParameters; ++p) {
      if (CHECK(memcmp(first[p], again[p], sizeof first[p]) == 0)) continue;
      fprintf(stderr, "  parameter %d, %u threads and %d of OpenBLAS\n", p, kThreads[i].workers, kThreads[i].blas);
    }
  }
  return check_end();
}
