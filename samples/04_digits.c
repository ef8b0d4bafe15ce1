/* Trains a classifier of hand-written digits whose layers live in three processes.
 *
 *   cc 04_digits.c $(pkg-config --cflags --libs distag) -lm -o digits && ./digits data/digits.csv [epochs]
 *
 * Rank 0, "trainer", has the data, a convolution and the loss; "middle" and "last" have a layer each. For each batch
 * the trainer calls "forward" on middle and then on last, in a context. One distag_backward runs back through all three
 * processes; each then finds the gradients of its own layer in the context and steps it: "sgd_step".
 *
 * Started like this, the program is the trainer and starts the other two itself. By hand, in three terminals:
 *   ./digits data/digits.csv 30 RANK file:///empty/directory */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <distag.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kRanks = 3, kPixels = 64, kClasses = 10, kBatch = 32, kEpochs = 30, kMaxImages = 2000 };
enum { kCheckedSteps = 20 };     /* at the start; compared with the same model in this process */
static const double kRate = 0.2; /* of the first epoch; falls to 0 in a straight line */
static const char *const kNames[kRanks] = {"trainer", "middle", "last"};

static int report(const char *who, const distag_error *err) {
  if (err->code == DISTAG_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", who, distag_status_get_name(err->code), err->message);
  return 1;
}

/* ---- a layer ---- */

typedef struct layer {
  int index; /* the rank of its owner */
  distag_tensor *weight, *bias;
} layer;

/* 16 filters of 3 x 3; 256 to 64; 64 to 10. */
static const int64_t kWeightShapes[kRanks][4] = {{16, 1, 3, 3}, {64, 256}, {kClasses, 64}};
static const size_t kWeightDims[kRanks] = {4, 2, 2};
static const double kFanIn[kRanks] = {9, 256, 64};
enum { kMaxParameters = 64 * 256 };

/* The same numbers in every process: a seed gives the same tensor everywhere. (He et al. 2015) */
static layer create_layer(int index, distag_error *err) {
  layer result = {index, NULL, NULL};
  distag_tensor *random = NULL;

  distag_randn((uint64_t)(100 + index), DISTAG_FLOAT32, kWeightShapes[index], kWeightDims[index], &random, err);
  distag_mul_scalar(random, sqrt(2 / kFanIn[index]), &result.weight, err);
  distag_zeros(DISTAG_FLOAT32, kWeightShapes[index], 1, &result.bias, err);
  distag_tensor_set_requires_grad(result.weight, 1, err);
  distag_tensor_set_requires_grad(result.bias, 1, err);
  distag_tensor_release(random);
  return result;
}

static void release_layer(layer *self) {
  distag_tensor_release(self->bias);
  distag_tensor_release(self->weight);
}

/* [n, 64] pixels to [n, 256]: convolution, relu, the largest of each 2 x 2. */
static distag_tensor *apply_convolution(const layer *self, distag_tensor *x, distag_error *err) {
  const int64_t image[4] = {-1, 1, 8, 8}, flat[2] = {-1, 256}, one[2] = {1, 1}, two[2] = {2, 2}, none[2] = {0, 0};
  distag_tensor *images = NULL, *filtered = NULL, *positive = NULL, *pooled = NULL, *y = NULL;
  distag_reshape(x, image, 4, &images, err);
  distag_conv2d(images, self->weight, self->bias, one, one, &filtered, err);
  distag_relu(filtered, &positive, err);
  distag_max_pool2d(positive, two, two, none, &pooled, err);
  distag_reshape(pooled, flat, 2, &y, err);
  distag_tensor_release(pooled);
  distag_tensor_release(positive);
  distag_tensor_release(filtered);
  distag_tensor_release(images);
  return y;
}

static distag_tensor *apply_layer(const layer *self, distag_tensor *x, distag_error *err) {
  distag_tensor *sum = NULL, *y = NULL;
  if (self->index == 0) return apply_convolution(self, x, err);
  distag_linear(x, self->weight, self->bias, &sum, err);
  if (self->index == kRanks - 1) return sum;
  distag_relu(sum, &y, err);
  distag_tensor_release(sum);
  return y;
}

/* Plain gradient descent with what the context has for this layer on this worker. */
static void step_layer(const layer *self, distag_context *context, double rate, distag_error *err) {
  distag_gradients *gradients = NULL;
  distag_get_gradients(context, &gradients, err);
  distag_tensor_add_scaled(self->weight, distag_gradients_find(gradients, self->weight), -rate, err);
  distag_tensor_add_scaled(self->bias, distag_gradients_find(gradients, self->bias), -rate, err);
  distag_gradients_release(gradients);
}

/* ---- what the owner of a layer offers ---- */

static distag_status forward(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *x = NULL, *y;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  y = apply_layer(user_data, x, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  distag_tensor_release(y);
  return err->code;
}

static distag_status sgd_step(void *user_data, distag_invocation *invocation, distag_error *err) {
  double rate = 0;
  distag_value_get_float64(distag_invocation_get_arg(invocation, 0), &rate, err);
  if (err->code == DISTAG_OK) step_layer(user_data, distag_invocation_get_context(invocation), rate, err);
  return err->code;
}

/* The gradients of weight and bias, for the comparison. */
static distag_status gradients_of_layer(void *user_data, distag_invocation *invocation, distag_error *err) {
  const layer *self = user_data;
  distag_gradients *gradients = NULL;
  distag_value *items[2], *answer = NULL;

  distag_get_gradients(distag_invocation_get_context(invocation), &gradients, err);
  items[0] = distag_tensor_as_value(distag_gradients_find(gradients, self->weight));
  items[1] = distag_tensor_as_value(distag_gradients_find(gradients, self->bias));
  distag_value_create_list(items, 2, &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  distag_gradients_release(gradients);
  return err->code;
}

static distag_worker *create_worker(int rank, const char *rendezvous, layer *own, distag_error *err) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  options.name = kNames[rank];
  options.rank = rank;
  options.world_size = kRanks;
  options.rendezvous = rendezvous;
  distag_worker_create(&options, &worker, err);
  distag_worker_register(worker, "forward", forward, own, NULL, NULL, err);
  distag_worker_register(worker, "sgd_step", sgd_step, own, NULL, NULL, err);
  distag_worker_register(worker, "gradients", gradients_of_layer, own, NULL, NULL, err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, err);
  return worker;
}

/* Ranks 1 and 2: serve until the trainer shuts down too, or is lost. */
static int run_owner(int rank, const char *rendezvous) {
  distag_error err = DISTAG_ERROR_INIT;
  layer own = create_layer(rank, &err);
  distag_worker *worker = create_worker(rank, rendezvous, &own, &err);

  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err);
  distag_worker_release(worker);
  release_layer(&own);
  return report(kNames[rank], &err);
}

/* ---- data: every fifth line is held out ---- */

typedef struct images {
  int count;
  float pixels[kMaxImages][kPixels];
  int64_t classes[kMaxImages];
} images;

static int read_line(FILE *file, float *pixels, int64_t *class_of) {
  int value = 0, i;
  for (i = 0; i < kPixels; ++i) {
    if (fscanf(file, "%d,", &value) != 1) return 0;
    pixels[i] = (float)value / 16;
  }
  if (fscanf(file, "%d", &value) != 1 || value < 0 || value >= kClasses) return 0;
  *class_of = value;
  return 1;
}

static int read_images(const char *path, images *train, images *held_out) {
  FILE *file = fopen(path, "r");
  int line;
  if (file == NULL) return perror(path), 0;
  for (line = 1; train->count < kMaxImages; ++line) {
    images *set = line % 5 == 0 ? held_out : train;
    if (!read_line(file, set->pixels[set->count], &set->classes[set->count])) break;
    ++set->count;
  }
  fclose(file);
  if (held_out->count == 0) return fprintf(stderr, "%s: no lines of 64 pixels and a class\n", path), 0;
  return 1;
}

/* The same order on every run: a linear congruential generator (Knuth, MMIX) shuffles. */
static void shuffle(images *set, uint64_t seed) {
  int i;
  for (i = set->count - 1; i > 0; --i) {
    float pixels[kPixels];
    int64_t class_of = set->classes[i];
    int j;
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    j = (int)((seed >> 33) % (uint64_t)(i + 1));
    memcpy(pixels, set->pixels[i], sizeof pixels);
    memcpy(set->pixels[i], set->pixels[j], sizeof pixels);
    memcpy(set->pixels[j], pixels, sizeof pixels);
    set->classes[i] = set->classes[j];
    set->classes[j] = class_of;
  }
}

static void create_batch(const images *set, int begin, int count, distag_tensor **out_x, distag_tensor **out_target,
                         distag_error *err) {
  const int64_t shape[2] = {count, kPixels};
  distag_tensor_create(set->pixels[begin], (size_t)count * sizeof set->pixels[0], DISTAG_FLOAT32, shape, 2, out_x, err);
  distag_tensor_create(&set->classes[begin], (size_t)count * sizeof set->classes[0], DISTAG_INT64, shape, 1, out_target,
                       err);
}

/* ---- training ---- */

typedef struct trainer {
  distag_worker *worker;
  layer first;             /* of the distributed model */
  layer reference[kRanks]; /* the same model, all of it here */
  int64_t steps;
  double rate;
  double seconds;    /* in steps, without the comparison */
  double difference; /* the largest relative one seen between the two models */
} trainer;

static double now_seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The logits, through all three processes; they are lent by *out_answer. */
static distag_tensor *forward_everywhere(trainer *self, distag_context *context, distag_tensor *x,
                                         distag_value **out_answer, distag_error *err) {
  distag_tensor *first = apply_layer(&self->first, x, err), *logits = NULL;
  distag_value *arg = distag_tensor_as_value(first), *middle = NULL;

  distag_call(self->worker, context, "middle", "forward", &arg, 1, NULL, &middle, err);
  distag_call(self->worker, context, "last", "forward", &middle, 1, NULL, out_answer, err);
  distag_value_get_tensor(*out_answer, &logits, err);
  distag_value_release(middle);
  distag_tensor_release(first);
  return logits;
}

/* Every owner steps its own layer, side by side. */
static void step_everywhere(trainer *self, distag_context *context, distag_error *err) {
  distag_future *stepped[2] = {NULL, NULL};
  distag_value *rate = NULL;
  distag_value_create_float64(self->rate, &rate, err);
  distag_call_async(self->worker, context, "middle", "sgd_step", &rate, 1, NULL, &stepped[0], err);
  distag_call_async(self->worker, context, "last", "sgd_step", &rate, 1, NULL, &stepped[1], err);
  step_layer(&self->first, context, self->rate, err);
  distag_wait_all(stepped, 2, DISTAG_FOREVER, err);
  distag_future_release(stepped[1]);
  distag_future_release(stepped[0]);
  distag_value_release(rate);
}

/* Keeps the largest difference of two tensors, relative to the largest element. */
static void compare(trainer *self, distag_tensor *a, distag_tensor *b, distag_error *err) {
  static float left[kMaxParameters], right[kMaxParameters];
  const size_t count = distag_tensor_get_count(a);
  double scale = 1e-30, largest = 0;
  size_t i;

  distag_tensor_copy_data(a, left, sizeof left, err);
  distag_tensor_copy_data(b, right, sizeof right, err);
  if (err->code != DISTAG_OK) return;
  if (distag_tensor_get_count(b) != count) largest = INFINITY;
  for (i = 0; i < count; ++i) {
    if (fabs(right[i]) > scale) scale = fabs(right[i]);
    if (!(fabs((double)left[i] - right[i]) <= largest)) largest = fabs((double)left[i] - right[i]);
  }
  if (!(largest / scale <= self->difference)) self->difference = largest / scale;
}

/* The gradients of rank's layer: from its own context here, or asked of its owner. */
static void compare_gradients(trainer *self, int rank, distag_context *context, distag_gradients *expected,
                              distag_error *err) {
  distag_value *answer = NULL;
  distag_tensor *weight = NULL, *bias = NULL;

  distag_call(self->worker, context, kNames[rank], "gradients", NULL, 0, NULL, &answer, err);
  distag_value_get_tensor(distag_value_get_item(answer, 0), &weight, err);
  distag_value_get_tensor(distag_value_get_item(answer, 1), &bias, err);
  compare(self, weight, distag_gradients_find(expected, self->reference[rank].weight), err);
  compare(self, bias, distag_gradients_find(expected, self->reference[rank].bias), err);
  distag_value_release(answer);
}

/* Runs the same step on the model in this process, and compares loss and all gradients. */
static void check_step(trainer *self, distag_tensor *x, distag_tensor *target, distag_context *context,
                       distag_tensor *loss, distag_error *err) {
  distag_context *local = NULL;
  distag_tensor *activation = x, *expected_loss = NULL;
  distag_gradients *expected = NULL;
  int rank;

  distag_context_create(NULL, &local, err);
  for (rank = 0; rank < kRanks; ++rank) {
    distag_tensor *next = apply_layer(&self->reference[rank], activation, err);
    if (activation != x) distag_tensor_release(activation);
    activation = next;
  }
  distag_cross_entropy(activation, target, &expected_loss, err);
  distag_backward(local, &expected_loss, 1, NULL, err);
  distag_get_gradients(local, &expected, err);

  compare(self, loss, expected_loss, err);
  for (rank = 0; rank < kRanks; ++rank) compare_gradients(self, rank, context, expected, err);
  for (rank = 0; rank < kRanks; ++rank) step_layer(&self->reference[rank], local, self->rate, err);

  distag_gradients_release(expected);
  distag_tensor_release(expected_loss);
  distag_tensor_release(activation);
  distag_context_release(local);
}

/* One batch: forward, backward, step. Gives the loss. */
static double train_step(trainer *self, distag_tensor *x, distag_tensor *target, distag_error *err) {
  distag_context *context = NULL;
  distag_value *answer = NULL;
  distag_tensor *logits, *loss = NULL;
  double value = 0, begin = now_seconds();

  distag_context_create(self->worker, &context, err);
  logits = forward_everywhere(self, context, x, &answer, err);
  distag_cross_entropy(logits, target, &loss, err);
  distag_tensor_get_item(loss, &value, err);
  distag_backward(context, &loss, 1, NULL, err);
  self->seconds += now_seconds() - begin;
  if (self->steps < kCheckedSteps) check_step(self, x, target, context, loss, err);
  begin = now_seconds();
  step_everywhere(self, context, err);
  distag_tensor_release(loss);
  distag_value_release(answer);
  distag_context_release(context);
  self->seconds += now_seconds() - begin;
  ++self->steps;
  return value;
}

static double train_epoch(trainer *self, const images *set, distag_error *err) {
  double loss = 0;
  int begin, count, batches = 0;
  for (begin = 0; begin < set->count && err->code == DISTAG_OK; begin += count) {
    distag_tensor *x = NULL, *target = NULL;
    count = set->count - begin < kBatch ? set->count - begin : kBatch;
    create_batch(set, begin, count, &x, &target, err);
    loss += train_step(self, x, target, err);
    distag_tensor_release(target);
    distag_tensor_release(x);
    ++batches;
  }
  return loss / batches;
}

/* The share of images whose largest logit is that of their class. Calls without a context record nothing. */
static double measure_accuracy(trainer *self, const images *set, distag_error *err) {
  distag_tensor *x = NULL, *target = NULL, *best = NULL, *hit = NULL, *hits = NULL, *share = NULL;
  distag_value *answer = NULL;
  double accuracy = 0;

  create_batch(set, 0, set->count, &x, &target, err);
  distag_argmax(forward_everywhere(self, NULL, x, &answer, err), 1, &best, err);
  distag_eq(best, target, &hit, err);
  distag_cast(hit, DISTAG_FLOAT32, &hits, err);
  distag_mean(hits, NULL, 0, 0, &share, err);
  distag_tensor_get_item(share, &accuracy, err);

  distag_tensor_release(share);
  distag_tensor_release(hits);
  distag_tensor_release(hit);
  distag_tensor_release(best);
  distag_value_release(answer);
  distag_tensor_release(target);
  distag_tensor_release(x);
  return accuracy;
}

/* One line that moves on a terminal, a line per epoch in a log. */
static void show_progress(int epoch, int epochs, double loss, double accuracy) {
  const int is_terminal = isatty(STDOUT_FILENO);
  printf("%sepoch %2d of %d   loss %.4f   held-out accuracy %.4f%s", is_terminal ? "\r" : "", epoch, epochs, loss,
         accuracy, is_terminal && epoch < epochs ? "" : "\n");
  fflush(stdout);
}

static int run_trainer(const char *data, int epochs, const char *rendezvous) {
  static images train, held_out;
  trainer self = {0};
  distag_error err = DISTAG_ERROR_INIT;
  double loss = 0, accuracy = 0;
  int epoch, rank;

  if (!read_images(data, &train, &held_out)) return 1;
  self.first = create_layer(0, &err);
  for (rank = 0; rank < kRanks; ++rank) self.reference[rank] = create_layer(rank, &err);
  self.worker = create_worker(0, rendezvous, &self.first, &err);

  for (epoch = 1; epoch <= epochs && err.code == DISTAG_OK; ++epoch) {
    self.rate = kRate * (epochs - epoch + 1) / epochs;
    shuffle(&train, (uint64_t)epoch);
    loss = train_epoch(&self, &train, &err);
    accuracy = measure_accuracy(&self, &held_out, &err);
    if (err.code == DISTAG_OK) show_progress(epoch, epochs, loss, accuracy);
  }

  distag_worker_shutdown(self.worker, 30 * DISTAG_SECOND, NULL, &err);
  distag_worker_release(self.worker);
  for (rank = 0; rank < kRanks; ++rank) release_layer(&self.reference[rank]);
  release_layer(&self.first);
  if (report(kNames[0], &err)) return 1;

  printf("held-out accuracy %.4f on %d images, after %d steps over %d processes\n", accuracy, held_out.count,
         (int)self.steps, kRanks);
  printf("%.0f steps per second\n", (double)self.steps / self.seconds);
  printf("loss and gradients of the first %d steps %s those of the same model in one process (difference %.1e)\n",
         kCheckedSteps, self.difference <= 1e-5 ? "equal" : "DIFFER FROM", self.difference);
  return self.difference <= 1e-5 ? 0 : 1;
}

/* ---- the processes ---- */

extern char **environ;
static char directory[] = "/tmp/distag-digits-XXXXXX"; /* where they meet */
static pid_t children[kRanks];

/* Whatever way the trainer ends: no process and no file stays behind. */
static void clean_up(void) {
  DIR *entries = opendir(directory);
  struct dirent *entry;
  char path[sizeof directory + sizeof entry->d_name + 1];
  int rank;

  for (rank = 1; rank < kRanks; ++rank) {
    if (children[rank] > 0 && kill(children[rank], SIGKILL) == 0) waitpid(children[rank], NULL, 0);
  }
  while (entries != NULL && (entry = readdir(entries)) != NULL) {
    snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    unlink(path);
  }
  if (entries != NULL) closedir(entries);
  rmdir(directory);
}

/* Starts this program again, as the owner of a layer. */
static int start_owner(char *program, int rank, char *rendezvous) {
  char rank_text[16], none[] = "-", epochs[] = "0";
  char *argv[] = {program, none, epochs, rank_text, rendezvous, NULL};
  snprintf(rank_text, sizeof rank_text, "%d", rank);
  return posix_spawn(&children[rank], "/proc/self/exe", NULL, NULL, argv, environ) == 0;
}

static int run_all(char *program, const char *data, int epochs) {
  char rendezvous[sizeof directory + 16];
  int rank, status = 0, failed;

  if (mkdtemp(directory) == NULL) return perror("mkdtemp"), 1;
  atexit(clean_up);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", directory);
  for (rank = 1; rank < kRanks; ++rank) {
    if (!start_owner(program, rank, rendezvous)) return fprintf(stderr, "%s cannot be started again\n", program), 1;
  }
  failed = run_trainer(data, epochs, rendezvous);
  for (rank = 1; rank < kRanks && !failed; ++rank) {
    waitpid(children[rank], &status, 0);
    children[rank] = 0;
    failed = status != 0;
  }
  return failed;
}

int main(int argc, char **argv) {
  const int epochs = argc > 2 ? atoi(argv[2]) : kEpochs;
  const int rank = argc > 3 ? atoi(argv[3]) : -1;

  if (argc < 2 || argc == 4 || rank >= kRanks || (rank <= 0 && epochs < 1)) {
    return fprintf(stderr, "usage: %s DIGITS.CSV [EPOCHS [RANK RENDEZVOUS]]\n", argv[0]), 2;
  }
  if (rank < 0) return run_all(argv[0], argv[1], epochs);
  return rank == 0 ? run_trainer(argv[1], epochs, argv[4]) : run_owner(rank, argv[4]);
}
