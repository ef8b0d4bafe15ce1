/* A member of the group in C: see README.md. usage: member RANK SIZE RENDEZVOUS DIGITS FIRST STEPS */
#include <distag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  kBatch = 32,
  kPixels = 64,
  kWidth = 32,
  kClasses = 10,
  kLines = 1600,
  kMaxSize = 16,
  kMaxParcels = 256,
  kBytes = 1 << 20,
  kElements = 64
};

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

static distag_status echo(void* user_data, distag_invocation* invocation, distag_error* err) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), err);
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

static struct {
  int64_t numbers[3];
  char name[32], text[96];
  unsigned char bytes[kBytes];
  float elements[kElements];
} sent;

/* A list of a list, a map, a text, bytes and a tensor, each another by the number; `sent` has what is in it. */
static distag_value* create_parcel(int number, distag_error* err) {
  const int64_t shape[2] = {8, 8};
  const char* keys[2] = {"from", "number"};
  distag_value *items[5] = {NULL}, *entries[2] = {NULL}, *parcel = NULL;
  distag_tensor* x = NULL;

  sent.numbers[0] = rank;
  sent.numbers[1] = number;
  sent.numbers[2] = INT64_C(9007199254740993);
  snprintf(sent.name, sizeof sent.name, "layer%d", rank);
  snprintf(sent.text, sizeof sent.text, "Grüße aus Schicht %d, Nr. %d: äöüß €", rank, number);
  for (int i = 0; i < kBytes; ++i) sent.bytes[i] = (unsigned char)(i + 31 * rank + number);
  distag_value_create_int64_list(sent.numbers, 3, &items[0], err);
  distag_value_create_text(sent.name, &entries[0], err);
  distag_value_create_int64(number, &entries[1], err);
  distag_value_create_map(keys, entries, 2, &items[1], err);
  distag_value_create_text(sent.text, &items[2], err);
  distag_value_create_bytes(sent.bytes, kBytes, &items[3], err);
  distag_randn((uint64_t)(1000 + 100 * rank + number), DISTAG_FLOAT32, shape, 2, &x, err);
  distag_tensor_copy_data(x, sent.elements, sizeof sent.elements, err);
  items[4] = distag_tensor_as_value(x); /* x itself: released as x */
  distag_value_create_list(items, 5, &parcel, err);
  for (int i = 0; i < 4; ++i) distag_value_release(items[i]);
  for (int i = 0; i < 2; ++i) distag_value_release(entries[i]);
  distag_tensor_release(x);
  return parcel;
}

/* Whether a parcel is the one that was made last. */
static int is_unchanged(distag_value* parcel, distag_error* err) {
  distag_value* map = distag_value_get_item(parcel, 1);
  int64_t numbers[3] = {0}, number = 0;
  const char *name = "", *text = "";
  const void* bytes = NULL;
  size_t count = 0, byte_count = 0;
  distag_tensor* x = NULL;
  float elements[kElements];

  distag_value_copy_int64s(distag_value_get_item(parcel, 0), numbers, 3, &count, err);
  distag_value_get_text(distag_value_get_entry(map, "from"), &name, err);
  distag_value_get_int64(distag_value_get_entry(map, "number"), &number, err);
  distag_value_get_text(distag_value_get_item(parcel, 2), &text, err);
  distag_value_get_bytes(distag_value_get_item(parcel, 3), &bytes, &byte_count, err);
  distag_value_get_tensor(distag_value_get_item(parcel, 4), &x, err);
  distag_tensor_copy_data(x, elements, sizeof elements, err);
  return err->code == DISTAG_OK && distag_value_get_count(parcel) == 5 && distag_value_get_count(map) == 2 &&
         count == 3 && memcmp(numbers, sent.numbers, sizeof numbers) == 0 && strcmp(name, sent.name) == 0 &&
         number == sent.numbers[1] && strcmp(text, sent.text) == 0 && byte_count == kBytes &&
         memcmp(bytes, sent.bytes, byte_count) == 0 && distag_tensor_get_ndim(x) == 2 &&
         memcmp(elements, sent.elements, sizeof elements) == 0;
}

static void exchange(int count, distag_error* err) {
  static distag_future* futures[kMaxSize * kMaxParcels];
  const int calls = size * count;
  int unchanged = 0;

  for (int i = 0; i < calls; ++i) { /* all at once */
    distag_value* parcel = i % size != rank ? create_parcel(i, err) : NULL;
    char name[32];
    snprintf(name, sizeof name, "layer%d", i % size);
    if (parcel != NULL) distag_call_async(worker, NULL, name, "echo", &parcel, 1, NULL, &futures[i], err);
    distag_value_release(parcel);
  }
  for (int i = 0; i < calls; ++i) {
    distag_value* answer = NULL;
    if (futures[i] == NULL) continue;
    distag_future_wait(futures[i], DISTAG_FOREVER, err);
    distag_future_get_value(futures[i], &answer, err);
    distag_value_release(create_parcel(i, err));
    unchanged += is_unchanged(answer, err);
    distag_future_release(futures[i]);
  }
  if (err->code == DISTAG_OK) printf("exchanged %d\n", unchanged);
  fflush(stdout);
}

/* After a failure: each line has a number of steps to train. */
static void go_on(const distag_error* failure) {
  char line[32];
  printf("failed %d %s\n", (int)failure->code, failure->message);
  fflush(stdout);
  while (fgets(line, sizeof line, stdin) != NULL) {
    distag_error err = DISTAG_ERROR_INIT;
    const int steps = atoi(line);
    for (int s = 0; s < steps && err.code == DISTAG_OK; ++s) train_step(0, s, kBatch * s, &err);
    if (err.code != DISTAG_OK) printf("failed %d %s\n", (int)err.code, err.message);
    fflush(stdout);
  }
}

int main(int argc, char** argv) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_error err = DISTAG_ERROR_INIT;
  char name[32];
  int first, steps;

  if (argc != 7) return fprintf(stderr, "usage: %s RANK SIZE RENDEZVOUS DIGITS FIRST STEPS\n", argv[0]), 2;
  options.rank = rank = atoi(argv[1]);
  options.world_size = size = atoi(argv[2]);
  snprintf(name, sizeof name, "layer%d", rank);
  first = atoi(argv[5]);
  steps = atoi(argv[6]);
  options.name = name;
  options.rendezvous = argv[3];
  read_digits(argv[4]);
  distag_worker_create(&options, &worker, &err);
  distag_worker_register(worker, "forward", forward, NULL, NULL, NULL, &err);
  distag_worker_register(worker, "step", step, NULL, NULL, NULL, &err);
  distag_worker_register(worker, "echo", echo, NULL, NULL, NULL, &err);
  create_layer(&err);
  distag_worker_start(worker, 120 * DISTAG_SECOND, &err);
  if (first >= 0) {
    take_turns(first, steps, &err);
  } else {
    exchange(steps, &err);
    while (err.code == DISTAG_OK && getchar() != EOF) continue;
  }
  if (err.code != DISTAG_OK) {
    go_on(&err);
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
