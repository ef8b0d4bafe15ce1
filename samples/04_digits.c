/* Trains a classifier of hand-written digits whose layers live in three processes.
 *
 *   cc 04_digits.c $(pkg-config --cflags --libs distag) -lm -o digits
 *   distag run -n 3 ./digits data/digits.csv [EPOCHS]
 *
 * Rank 0, "trainer", has the data, a convolution and the loss; "middle" and "last" have a layer each. For each batch
 * the trainer calls "forward" on middle and then on last, in a context. One distag_backward runs back through all three
 * processes, and one distag_optimizer_step updates each layer where it lives. */
#define _POSIX_C_SOURCE 200809L
#include <distag.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kRanks = 3, kPixels = 64, kClasses = 10, kBatch = 32, kEpochs = 30, kMaxImages = 2000 };
static const double kRate = 0.2; /* of the first epoch; falls to 0 in a straight line */
static const char *const kNames[kRanks] = {"trainer", "middle", "last"};

/* ---- a layer: 16 filters of 3 x 3; 256 to 64; 64 to 10 ---- */

typedef struct layer {
  int index; /* the rank of its owner */
  distag_tensor *weight, *bias;
} layer;

static const int64_t kWeightShapes[kRanks][4] = {{16, 1, 3, 3}, {64, 256}, {kClasses, 64}};
static const size_t kWeightDims[kRanks] = {4, 2, 2};
static const double kFanIn[kRanks] = {9, 256, 64};

/* Normal numbers, scaled by the fan-in (He et al. 2015). */
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

static distag_status forward(void *own, distag_invocation *invocation, distag_error *err) {
  distag_tensor *x = NULL, *y;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  y = apply_layer(own, x, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  distag_tensor_release(y);
  return err->code;
}

/* Called by distag_remote: the list stays here with its tensors, and the optimizer gets an rref to it. */
static distag_status parameters(void *user_data, distag_invocation *invocation, distag_error *err) {
  const layer *own = user_data;
  distag_value *items[2] = {distag_tensor_as_value(own->weight), distag_tensor_as_value(own->bias)}, *list = NULL;
  distag_value_create_list(items, 2, &list, err);
  distag_invocation_return(invocation, list, err);
  distag_value_release(list);
  return err->code;
}

/* ---- the data: every fifth line is held out ---- */

typedef struct images {
  int count;
  float pixels[kMaxImages][kPixels];
  int64_t classes[kMaxImages];
} images;

static int read_images(const char *path, images *train, images *held_out) {
  FILE *file = fopen(path, "r");
  int value = 0, i = kPixels;

  for (int line = 1; file != NULL && line <= kMaxImages && i == kPixels; ++line) {
    images *set = line % 5 == 0 ? held_out : train;
    for (i = 0; i < kPixels && fscanf(file, "%d,", &value) == 1; ++i) set->pixels[set->count][i] = (float)value / 16;
    if (i == kPixels && fscanf(file, "%d", &value) == 1) set->classes[set->count++] = value;
  }
  if (file != NULL) fclose(file);
  if (held_out->count > 0) return 1;
  return fprintf(stderr, "%s: no lines of 64 pixels and a class\n", path), 0;
}

/* The same order on every run: a linear congruential generator (Knuth, MMIX) shuffles. */
static void shuffle(images *set, uint64_t seed) {
  for (int i = set->count - 1; i > 0; --i) {
    const int64_t class_of = set->classes[i];
    float pixels[kPixels];
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const int j = (int)((seed >> 33) % (uint64_t)(i + 1));
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
  layer own;
  distag_rref *others[kRanks]; /* the parameters of middle and last */
  distag_optimizer *sgd;
  int64_t steps;
} trainer;

/* An optimizer of the parameters of all three processes. */
static void create_optimizer(trainer *self, distag_error *err) {
  distag_value *all[4] = {distag_tensor_as_value(self->own.weight), distag_tensor_as_value(self->own.bias)};
  for (int rank = 1; rank < kRanks; ++rank) {
    distag_remote(self->worker, NULL, kNames[rank], "parameters", NULL, 0, NULL, &self->others[rank], err);
    all[1 + rank] = distag_rref_as_value(self->others[rank]);
  }
  distag_optimizer_create(self->worker, "sgd", all, 4, &self->sgd, err);
}

/* The logits, through all three processes; *out_answer lends them. */
static distag_tensor *forward_everywhere(trainer *self, distag_context *context, distag_tensor *x,
                                         distag_value **out_answer, distag_error *err) {
  distag_tensor *first = apply_layer(&self->own, x, err), *logits = NULL;
  distag_value *arg = distag_tensor_as_value(first), *middle = NULL;

  distag_call(self->worker, context, "middle", "forward", &arg, 1, NULL, &middle, err);
  distag_call(self->worker, context, "last", "forward", &middle, 1, NULL, out_answer, err);
  distag_value_get_tensor(*out_answer, &logits, err);
  distag_value_release(middle);
  distag_tensor_release(first);
  return logits;
}

/* Trains on a batch: forward, backward, step. Returns the loss. */
static double train_step(trainer *self, distag_tensor *x, distag_tensor *target, distag_error *err) {
  distag_context *context = NULL;
  distag_value *answer = NULL;
  distag_tensor *logits, *loss = NULL;
  double value = 0;

  distag_context_create(self->worker, &context, err);
  logits = forward_everywhere(self, context, x, &answer, err);
  distag_cross_entropy(logits, target, &loss, err);
  distag_tensor_get_item(loss, &value, err);
  distag_backward(context, &loss, 1, NULL, err);
  distag_optimizer_step(self->sgd, context, NULL, err);
  distag_tensor_release(loss);
  distag_value_release(answer);
  distag_context_release(context);
  ++self->steps;
  return value;
}

static double train_epoch(trainer *self, const images *set, distag_error *err) {
  double loss = 0;
  int batches = 0;
  for (int begin = 0, count; begin < set->count && err->code == DISTAG_OK; begin += count, ++batches) {
    distag_tensor *x = NULL, *target = NULL;
    count = set->count - begin < kBatch ? set->count - begin : kBatch;
    create_batch(set, begin, count, &x, &target, err);
    loss += train_step(self, x, target, err);
    distag_tensor_release(target);
    distag_tensor_release(x);
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

/* Shows a line that moves on a terminal, or a line per epoch in a log. */
static void show_progress(int epoch, int epochs, double loss, double accuracy) {
  const int is_terminal = isatty(STDOUT_FILENO);
  printf("%sepoch %2d of %d   loss %.4f   held-out accuracy %.4f%s", is_terminal ? "\r" : "", epoch, epochs, loss,
         accuracy, is_terminal && epoch < epochs ? "" : "\n");
  fflush(stdout);
}

static double now_seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void train(trainer *self, const char *data, int epochs, distag_error *err) {
  static images train_set, held_out;
  double seconds = 0, accuracy = 0;

  if (!read_images(data, &train_set, &held_out)) exit(1);
  create_optimizer(self, err);
  for (int epoch = 1; epoch <= epochs && err->code == DISTAG_OK; ++epoch) {
    double loss, begin;
    shuffle(&train_set, (uint64_t)epoch);
    distag_optimizer_set(self->sgd, "lr", kRate * (epochs - epoch + 1) / epochs, err);
    begin = now_seconds();
    loss = train_epoch(self, &train_set, err);
    seconds += now_seconds() - begin;
    accuracy = measure_accuracy(self, &held_out, err);
    if (err->code == DISTAG_OK) show_progress(epoch, epochs, loss, accuracy);
  }
  distag_optimizer_release(self->sgd);
  for (int rank = 1; rank < kRanks; ++rank) distag_rref_release(self->others[rank]);
  if (err->code != DISTAG_OK) return;
  printf("held-out accuracy %.4f on %d images, after %d steps over %d processes\n", accuracy, held_out.count,
         (int)self->steps, kRanks);
  printf("%.0f steps per second\n", (double)self->steps / seconds);
}

int main(int argc, char **argv) {
  const int epochs = argc > 2 ? atoi(argv[2]) : kEpochs;
  distag_environment place = DISTAG_ENVIRONMENT_INIT;         /* of distag run, torchrun, srun ... */
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT; /* rank, size and address come from there, too */
  distag_error err = DISTAG_ERROR_INIT;
  trainer self = {0};

  if (argc < 2 || epochs < 1 || distag_get_environment(&place, &err) || place.rank < 0 || place.rank >= kRanks) {
    return fprintf(stderr, "usage: distag run -n %d %s DIGITS.CSV [EPOCHS]\n%s\n", kRanks, argv[0], err.message), 2;
  }
  options.name = kNames[place.rank];
  self.own = create_layer(place.rank, &err);
  distag_worker_create(&options, &self.worker, &err);
  distag_worker_register(self.worker, "forward", forward, &self.own, NULL, NULL, &err);
  distag_worker_register(self.worker, "parameters", parameters, &self.own, NULL, NULL, &err);
  distag_worker_start(self.worker, 30 * DISTAG_SECOND, &err);
  if (place.rank == 0) train(&self, argv[1], epochs, &err);
  distag_worker_shutdown(self.worker, DISTAG_FOREVER, NULL, &err); /* serves until all others shut down too */
  distag_worker_release(self.worker);
  distag_tensor_release(self.own.bias);
  distag_tensor_release(self.own.weight);
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s\n", options.name, err.message);
  return err.code != DISTAG_OK;
}
