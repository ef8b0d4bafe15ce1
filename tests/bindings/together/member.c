/* A member of the group in C: see README.md. usage: member RANK SIZE FOLDER DIGITS FIRST STEPS */
#include <distag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatch = 32, kPixels = 64, kWidth = 32, kClasses = 10, kLines = 1600, kMaxSize = 16 };

static distag_tensor *weight, *bias;
static distag_optimizer* sgd;
static distag_worker* worker;
static int rank, size;
static float pixels[kLines + kBatch][kPixels];
static int64_t classes[kLines + kBatch];

static uint32_t add_bytes(uint32_t crc, distag_tensor* tensor, distag_error* err) {
  unsigned char bytes[kPixels * kWidth * sizeof(float)];
  const size_t count = distag_tensor_get_size(tensor);
  distag_tensor_copy_data(tensor, bytes, sizeof bytes, err);
  for (size_t i = 0; i < count; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (UINT32_C(0xEDB88320) & (0 - (crc & 1)));
  }
  return crc;
}

static distag_status forward(void* user_data, distag_invocation* invocation, distag_error* err) {
  distag_tensor *x = NULL, *sum = NULL, *y = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  distag_linear(x, weight, bias, &sum, err);
  if (rank != size - 1) distag_relu(sum, &y, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y != NULL ? y : sum), err);
  distag_tensor_release(y);
  distag_tensor_release(sum);
  return err->code;
}

static distag_status step(void* user_data, distag_invocation* invocation, distag_error* err) {
  distag_context* context = distag_invocation_get_context(invocation);
  distag_gradients* gradients = NULL;
  distag_value* answer = NULL;
  uint32_t crc = UINT32_MAX;
  (void)user_data;
  distag_optimizer_step(sgd, context, NULL, err);
  distag_get_gradients(context, &gradients, err);
  crc = add_bytes(crc, weight, err);
  crc = add_bytes(crc, distag_gradients_find(gradients, weight), err);
  crc = add_bytes(crc, bias, err);
  crc = add_bytes(crc, distag_gradients_find(gradients, bias), err);
  distag_value_create_int64((int64_t)(crc ^ UINT32_MAX), &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  distag_gradients_release(gradients);
  return err->code;
}

static void create_layer(distag_error* err) {
  const int64_t shape[2] = {rank == size - 1 ? kClasses : kWidth, rank == 0 ? kPixels : kWidth};
  distag_tensor* random = NULL;
  distag_value* parameters[2];
  distag_randn((uint64_t)(100 + rank), DISTAG_FLOAT32, shape, 2, &random, err);
  distag_mul_scalar(random, 0.2, &weight, err);
  distag_zeros(DISTAG_FLOAT32, shape, 1, &bias, err);
  distag_tensor_set_requires_grad(weight, 1, err);
  distag_tensor_set_requires_grad(bias, 1, err);
  distag_tensor_release(random);
  parameters[0] = distag_tensor_as_value(weight);
  parameters[1] = distag_tensor_as_value(bias);
  distag_optimizer_create(worker, "sgd", parameters, 2, &sgd, err);
  distag_optimizer_set(sgd, "lr", 0.1, err);
  distag_optimizer_set(sgd, "momentum", 0.9, err);
}

static void read_digits(const char* path) {
  FILE* file = fopen(path, "r");
  int number = 0;
  for (int line = 0; file != NULL && line < kLines + kBatch; ++line) {
    for (int i = 0; i < kPixels; ++i) {
      if (fscanf(file, "%d,", &number) == 1) pixels[line][i] = (float)number / 16;
    }
    if (fscanf(file, "%d", &number) == 1) classes[line] = number;
  }
  if (file != NULL) fclose(file);
}

static void train_step(int turn, int number, int begin, distag_error* err) {
  const int64_t shape[2] = {kBatch, kPixels};
  distag_tensor *x = NULL, *target = NULL, *logits = NULL, *loss = NULL;
  distag_context* context = NULL;
  distag_value *answers[kMaxSize] = {NULL}, *sum = NULL, *input;
  float bits = 0;
  uint32_t word = 0;
  char name[32], sums[kMaxSize * 12] = "";

  distag_tensor_create(pixels[begin], kBatch * sizeof pixels[0], DISTAG_FLOAT32, shape, 2, &x, err);
  distag_tensor_create(&classes[begin], kBatch * sizeof classes[0], DISTAG_INT64, shape, 1, &target, err);
  distag_context_create(worker, &context, err);
  input = distag_tensor_as_value(x);
  for (int i = 0; i < size; input = answers[i++]) {
    snprintf(name, sizeof name, "layer%d", i);
    distag_call(worker, context, name, "forward", &input, 1, NULL, &answers[i], err);
  }
  distag_value_get_tensor(input, &logits, err);
  distag_cross_entropy(logits, target, &loss, err);
  distag_tensor_copy_data(loss, &bits, sizeof bits, err);
  memcpy(&word, &bits, sizeof word);
  if (err->code == DISTAG_OK) distag_backward(context, &loss, 1, NULL, err);
  for (int i = 0; i < size && err->code == DISTAG_OK; ++i) {
    int64_t crc = 0;
    snprintf(name, sizeof name, "layer%d", i);
    distag_call(worker, context, name, "step", NULL, 0, NULL, &sum, err);
    distag_value_get_int64(sum, &crc, err);
    distag_value_release(sum);
    snprintf(sums + strlen(sums), sizeof sums - strlen(sums), " %lld", (long long)crc);
  }
  if (err->code == DISTAG_OK) printf("%d %d %08x%s\n", turn, number, word, sums);
  fflush(stdout);
  distag_tensor_release(loss);
  for (int i = 0; i < size; ++i) distag_value_release(answers[i]);
  distag_context_release(context);
  distag_tensor_release(target);
  distag_tensor_release(x);
}

static void take_turns(int first, int steps, distag_error* err) {
  distag_value* null = NULL;
  distag_value_create_null(&null, err);
  for (int turn = 0; turn < size && err->code == DISTAG_OK; ++turn) {
    for (int s = 0; (first + turn) % size == rank && s < steps && err->code == DISTAG_OK; ++s) {
      train_step(turn, s, (int)((int64_t)kBatch * (steps * turn + s) % kLines), err);
    }
    if (err->code == DISTAG_OK) distag_worker_all_gather(worker, null, NULL, 0, 120 * DISTAG_SECOND, NULL, err);
  }
  distag_value_release(null);
}

int main(int argc, char** argv) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_error err = DISTAG_ERROR_INIT;
  char rendezvous[512], name[32];

  if (argc != 7) return fprintf(stderr, "usage: %s RANK SIZE FOLDER DIGITS FIRST STEPS\n", argv[0]), 2;
  options.rank = rank = atoi(argv[1]);
  options.world_size = size = atoi(argv[2]);
  snprintf(name, sizeof name, "layer%d", rank);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", argv[3]);
  options.name = name;
  options.rendezvous = rendezvous;
  read_digits(argv[4]);
  distag_worker_create(&options, &worker, &err);
  distag_worker_register(worker, "forward", forward, NULL, NULL, NULL, &err);
  distag_worker_register(worker, "step", step, NULL, NULL, NULL, &err);
  create_layer(&err);
  distag_worker_start(worker, 120 * DISTAG_SECOND, &err);
  take_turns(atoi(argv[5]), atoi(argv[6]), &err);
  if (err.code != DISTAG_OK) {
    printf("failed %d %s\n", (int)err.code, err.message);
    fflush(stdout);
    while (getchar() != EOF) continue;
    distag_worker_shutdown(worker, 0, NULL, NULL);
  } else {
    distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err);
  }
  distag_optimizer_release(sgd);
  distag_tensor_release(bias);
  distag_tensor_release(weight);
  distag_worker_release(worker);
  return err.code == DISTAG_OK ? 0 : 3;
}
