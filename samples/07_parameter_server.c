/* A parameter server: one process owns a model, three others train it together, each with a third of the digits.
 *
 *   cc 07_parameter_server.c $(pkg-config --cflags --libs distag) -lm -o parameter_server
 *   distag run -n 4 ./parameter_server data/digits.csv [ROUNDS]
 *
 * The model embeds the brightness of each pixel and puts a network of two layers on top; the worker "ps" owns it.
 *
 * - The table of embeddings stays at ps. A trainer has its rows looked up by a call, which its context records; the
 *   backward pass then leaves the gradient of the table in that context at ps.
 * - The network comes to the trainers. They send its gradients to "average", which answers only after all three have
 *   called: it defers its replies, and no thread waits. The last call takes the step with the mean of the
 *   gradients, of network and table, and all three get the new network as their answer. */
#include <distag.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { kTrainers = 3, kBatch = 16, kRounds = 600, kShown = 100, kMaxImages = 2000 };
enum { kPixels = 64, kLevels = 17, kFeatures = 4, kHidden = 128, kClasses = 10, kParameters = 4 };
static const double kRate = 0.5; /* of the first round; falls to 0 in a straight line */

/* ---- ps: the server ---- */

typedef struct contribution {
  distag_gradients *table; /* what the pass left at ps in the trainer's context */
  distag_value *network;   /* a list, sent by the trainer */
  distag_reply *reply;     /* the trainer waits for it */
} contribution;

typedef struct server {
  distag_tensor *table;
  distag_tensor *network[kParameters]; /* no gradients are taken of it here */
  int rounds;
  pthread_mutex_t mutex; /* functions run side by side */
  contribution came[kTrainers];
  int came_count, round;
} server;

static distag_tensor *create_random(double deviation, int64_t rows, int64_t columns, distag_error *err) {
  const int64_t shape[2] = {rows, columns};
  distag_tensor *normal = NULL, *result = NULL;
  distag_randn(7, DISTAG_FLOAT32, shape, 2, &normal, err);
  distag_mul_scalar(normal, deviation, &result, err);
  distag_tensor_release(normal);
  return result;
}

static void create_model(server *self, distag_error *err) {
  const int64_t inputs = kPixels * kFeatures, hidden = kHidden, classes = kClasses;
  self->table = create_random(0.02, kLevels, kFeatures, err);
  distag_tensor_set_requires_grad(self->table, 1, err);
  self->network[0] = create_random(sqrt(2.0 / (double)inputs), hidden, inputs, err);
  distag_zeros(DISTAG_FLOAT32, &hidden, 1, &self->network[1], err);
  self->network[2] = create_random(sqrt(2.0 / (double)hidden), classes, hidden, err);
  distag_zeros(DISTAG_FLOAT32, &classes, 1, &self->network[3], err);
}

/* Indices [n, 64] to embeddings [n, 64, 4]. No step runs meanwhile: it would need the trainer that asks. */
static distag_status lookup(void *user_data, distag_invocation *invocation, distag_error *err) {
  server *self = user_data;
  distag_tensor *inputs[2] = {NULL, self->table}, *rows = NULL;
  distag_invocation_get_tensor(invocation, 0, &inputs[0], err);
  distag_apply("embedding", inputs, 2, NULL, 0, &rows, 1, err);
  distag_invocation_return(invocation, distag_tensor_as_value(rows), err);
  distag_tensor_release(rows);
  return err->code;
}

/* A tensor that is sent keeps its values, whatever the next step does to the parameters. */
static distag_value *create_network_value(server *self, distag_error *err) {
  distag_value *items[kParameters], *list = NULL;
  for (int i = 0; i < kParameters; ++i) items[i] = distag_tensor_as_value(self->network[i]);
  distag_value_create_list(items, kParameters, &list, err);
  return list;
}

static distag_status get_network(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_value *list = create_network_value(user_data, err);
  distag_invocation_return(invocation, list, err);
  distag_value_release(list);
  return err->code;
}

/* All have called: a step with the mean of their gradients, always added in the same order, and the answer to all. */
static void finish_round(server *self) {
  const double scale = -kRate * (self->rounds - self->round) / self->rounds / kTrainers;
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *answer;

  for (int i = 0; i < kTrainers; ++i) {
    distag_tensor_add_scaled(self->table, distag_gradients_find(self->came[i].table, self->table), scale, &err);
    for (int k = 0; k < kParameters; ++k) {
      distag_tensor *gradient = NULL;
      distag_value_get_tensor(distag_value_get_item(self->came[i].network, (size_t)k), &gradient, &err);
      distag_tensor_add_scaled(self->network[k], gradient, scale, &err);
    }
  }
  answer = create_network_value(self, &err);
  for (int i = 0; i < kTrainers; ++i) {
    distag_reply_finish(self->came[i].reply, answer, &err, NULL); /* the value, or the failure */
    distag_reply_release(self->came[i].reply);
    distag_value_release(self->came[i].network);
    distag_gradients_release(self->came[i].table);
  }
  distag_value_release(answer);
  self->came_count = 0;
  ++self->round;
}

static distag_status average(void *user_data, distag_invocation *invocation, distag_error *err) {
  server *self = user_data;
  distag_context *context = distag_invocation_get_context(invocation);
  contribution own = {NULL, distag_invocation_get_arg(invocation, 0), NULL};

  distag_get_gradients(context, &own.table, err);
  if (err->code == DISTAG_OK) distag_invocation_defer(invocation, &own.reply, err);
  if (err->code != DISTAG_OK) return distag_gradients_release(own.table), err->code;

  distag_value_retain(own.network); /* arguments are lent */
  pthread_mutex_lock(&self->mutex);
  self->came[(distag_context_get_id(context) >> 48) - 1] = own; /* the rank of the trainer, which made the context */
  if (++self->came_count == kTrainers) finish_round(self);
  pthread_mutex_unlock(&self->mutex);
  return DISTAG_OK;
}

/* Serves until all trainers have shut down too. */
static void run_server(distag_worker *worker, int rounds, distag_error *err) {
  server self = {.rounds = rounds, .mutex = PTHREAD_MUTEX_INITIALIZER};
  create_model(&self, err);
  distag_worker_register(worker, "lookup", lookup, &self, NULL, NULL, err);
  distag_worker_register(worker, "network", get_network, &self, NULL, NULL, err);
  distag_worker_register(worker, "average", average, &self, NULL, NULL, err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, err);
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, err);
  distag_worker_release(worker);
  for (int i = 0; i < kParameters; ++i) distag_tensor_release(self.network[i]);
  distag_tensor_release(self.table);
  if (err->code != DISTAG_OK) return;
  printf("ps: %d steps, each with the mean of %d gradients; handles left: %d\n", self.round, kTrainers,
         (int)distag_get_handle_count());
}

/* ---- the data: every fifth line is held out, the others are dealt to the trainers in turn ---- */

typedef struct images {
  int count;
  int64_t levels[kMaxImages][kPixels]; /* 0 to 16: rows of the table */
  int64_t classes[kMaxImages];
} images;

static int read_images(const char *path, int rank, images *own, images *held_out) {
  static images others;
  FILE *file = fopen(path, "r");
  int line, value = 0, i = kPixels;

  for (line = 0; file != NULL && line < kMaxImages && i == kPixels; ++line) {
    images *set = line % 5 == 4 ? held_out : line % kTrainers == rank - 1 ? own : &others;
    for (i = 0; i < kPixels && fscanf(file, "%d,", &value) == 1; ++i) set->levels[set->count][i] = value;
    if (i == kPixels && fscanf(file, "%d", &value) == 1) set->classes[set->count++] = value;
  }
  if (file != NULL) fclose(file);
  if (own->count > kBatch && held_out->count > 0) return 1;
  return fprintf(stderr, "%s: too few lines of 64 pixels and a class\n", path), 0;
}

/* ---- trainers ---- */

typedef struct trainer {
  distag_worker *worker;
  distag_value *network;                  /* the last answer of ps */
  distag_tensor *parameters[kParameters]; /* lent by it */
} trainer;

/* References that arrive become this worker's own: they serve to ask for gradients as they are. Takes the list. */
static void use_network(trainer *self, distag_value *network, distag_error *err) {
  distag_value_release(self->network);
  self->network = network;
  for (size_t i = 0; i < kParameters; ++i) {
    distag_value_get_tensor(distag_value_get_item(network, i), &self->parameters[i], err);
    distag_tensor_set_requires_grad(self->parameters[i], 1, err);
  }
}

/* The logits [count, 10] of some images. With a context the call is recorded in it. */
static distag_tensor *predict(trainer *self, distag_context *context, const images *set, int begin, int count,
                              distag_error *err) {
  const int64_t shape[2] = {count, kPixels}, flat[2] = {-1, kPixels * kFeatures};
  const size_t size = (size_t)count * sizeof set->levels[0];
  distag_tensor *indices = NULL, *rows = NULL, *inputs = NULL, *sums = NULL, *hidden = NULL, *logits = NULL;
  distag_value *arg, *answer = NULL;

  distag_tensor_create(set->levels[begin], size, DISTAG_INT64, shape, 2, &indices, err);
  arg = distag_tensor_as_value(indices);
  distag_call(self->worker, context, "ps", "lookup", &arg, 1, NULL, &answer, err);
  distag_value_get_tensor(answer, &rows, err);
  distag_reshape(rows, flat, 2, &inputs, err);
  distag_linear(inputs, self->parameters[0], self->parameters[1], &sums, err);
  distag_relu(sums, &hidden, err);
  distag_linear(hidden, self->parameters[2], self->parameters[3], &logits, err);

  distag_tensor *const made[] = {indices, inputs, sums, hidden};
  for (int i = 0; i < 4; ++i) distag_tensor_release(made[i]);
  distag_value_release(answer);
  return logits;
}

/* Sends the gradients of the network, in the context that holds the table's at ps, and waits for the new network. */
static void average_everywhere(trainer *self, distag_context *context, distag_error *err) {
  distag_gradients *gradients = NULL;
  distag_value *items[kParameters], *list = NULL, *network = NULL;

  distag_get_gradients(context, &gradients, err);
  for (int i = 0; i < kParameters; ++i) {
    items[i] = distag_tensor_as_value(distag_gradients_find(gradients, self->parameters[i]));
  }
  distag_value_create_list(items, kParameters, &list, err);
  distag_call(self->worker, context, "ps", "average", &list, 1, NULL, &network, err);
  if (err->code == DISTAG_OK) use_network(self, network, err);
  distag_value_release(list);
  distag_gradients_release(gradients);
}

/* Trains on a batch of the trainer's own images, in turn. Returns the loss. */
static double train_round(trainer *self, int round, const images *own, distag_error *err) {
  const int64_t count = kBatch;
  const int begin = round * kBatch % (own->count - kBatch);
  distag_context *context = NULL;
  distag_tensor *targets = NULL, *logits, *loss = NULL;
  double value = 0;

  distag_context_create(self->worker, &context, err);
  distag_tensor_create(&own->classes[begin], kBatch * sizeof own->classes[0], DISTAG_INT64, &count, 1, &targets, err);
  logits = predict(self, context, own, begin, kBatch, err);
  distag_cross_entropy(logits, targets, &loss, err);
  distag_tensor_get_item(loss, &value, err);
  distag_backward(context, &loss, 1, NULL, err);
  average_everywhere(self, context, err);

  distag_tensor_release(loss);
  distag_tensor_release(logits);
  distag_tensor_release(targets);
  distag_context_release(context);
  return value;
}

/* The share of images whose largest logit is that of their class. */
static double measure_accuracy(trainer *self, const images *set, distag_error *err) {
  static int64_t best[kMaxImages];
  distag_tensor *logits = predict(self, NULL, set, 0, set->count, err), *classes = NULL;
  int hits = 0;

  distag_argmax(logits, 1, &classes, err);
  distag_tensor_copy_data(classes, best, sizeof best, err);
  for (int i = 0; i < set->count; ++i) hits += best[i] == set->classes[i];
  distag_tensor_release(classes);
  distag_tensor_release(logits);
  return (double)hits / set->count;
}

static void run_trainer(distag_worker *worker, int rank, const char *data, int rounds, distag_error *err) {
  static images own, held_out;
  trainer self = {worker, NULL, {NULL}};
  distag_value *network = NULL;

  if (!read_images(data, rank, &own, &held_out)) exit(1);
  distag_worker_start(worker, 30 * DISTAG_SECOND, err);
  distag_call(worker, NULL, "ps", "network", NULL, 0, NULL, &network, err);
  use_network(&self, network, err);
  for (int round = 1; round <= rounds && err->code == DISTAG_OK; ++round) {
    const double loss = train_round(&self, round, &own, err);
    if (rank > 1 || (round % kShown != 0 && round != rounds)) continue;
    printf("round %4d of %d   loss %.4f   held-out accuracy %.4f\n", round, rounds, loss,
           measure_accuracy(&self, &held_out, err));
  }
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, err);
  distag_worker_release(worker);
  distag_value_release(self.network);
}

int main(int argc, char **argv) {
  const int rounds = argc > 2 ? atoi(argv[2]) : kRounds;
  distag_environment place = DISTAG_ENVIRONMENT_INIT;         /* of distag run, torchrun, srun ... */
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT; /* rank, size and address come from there, too */
  distag_worker *worker = NULL;
  distag_error err = DISTAG_ERROR_INIT;

  if (argc < 2 || rounds < 1 || distag_get_environment(&place, &err) || place.rank < 0 || place.rank > kTrainers) {
    return fprintf(stderr, "usage: distag run -n 4 %s DIGITS.CSV [ROUNDS]\n%s\n", argv[0], err.message), 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (place.rank == 0) options.name = "ps";     /* trainers keep the names that a rank gives: "worker1" ... */
  options.call_timeout_ns = 20 * DISTAG_SECOND; /* also the longest that two trainers wait for the third */
  distag_worker_create(&options, &worker, &err);
  if (place.rank == 0) run_server(worker, rounds, &err);
  if (place.rank > 0) run_trainer(worker, place.rank, argv[1], rounds, &err);
  if (err.code != DISTAG_OK) fprintf(stderr, "rank %d: %s\n", place.rank, err.message);
  return err.code != DISTAG_OK;
}
