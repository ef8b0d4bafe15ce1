/* A sample of samples/hosts in C or C++ as a test runs it. Each call of distag comes by here first (wrap.py): calls of
 * frames are counted, and those that may block. The gradients of the first step of training are compared with those of
 * the whole model in this process. LEAVE_IN names a function: its first call sends the SIGINT by which the host is
 * left. */
#ifndef DISTAG_TESTS_HOSTS_WATCHED_H
#define DISTAG_TESTS_HOSTS_WATCHED_H

#include <distag.h>
#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "left.h"

enum { kWidth = 32, kInputs = 4, kBatch = 32, kMostFrames = 1 << 20 };

void note_call(const char* name, int blocks);
void note_return(void);
void before_distag_linear(distag_tensor* x, distag_tensor* weight, distag_tensor* bias, distag_tensor** out_y,
                          distag_error* err);
void before_distag_mse_loss(distag_tensor* a, distag_tensor* b, distag_tensor** out_y, distag_error* err);
void before_distag_optimizer_step_async(distag_optimizer* optimizer, distag_context* context,
                                        const distag_call_options* options, distag_future** out_future,
                                        distag_error* err);
void before_distag_context_release(distag_context* context);

/* ---- Calls, and the times of frames. ---- */

static float times[kMostFrames]; /* ms of the processor */
static int frame_count, is_in_frame, is_checking, has_left, slept, open_steps, open_at_the_end;
static long calls, blocking;

static void note_blocking(const char* name) {
  printf("robot: a frame calls %s, which blocks\n", name);
  ++blocking;
}

static void count_call(const char* name, int blocks) {
  const char* where = getenv("LEAVE_IN");
  if (is_checking) return;
  if (strcmp(name, "distag_context_create") == 0) ++open_steps;
  if (strcmp(name, "distag_worker_shutdown") == 0) is_in_frame = 0, open_at_the_end = open_steps;
  calls += is_in_frame;
  if (is_in_frame && blocks) note_blocking(name);
  if (where == NULL || has_left || strcmp(name, where) != 0) return;
  has_left = 1;
  raise(SIGINT);
}

void before_distag_context_release(distag_context* context) { open_steps -= context != NULL && !is_checking; }

static void note_frame(double milliseconds, int has_slept) {
  if (frame_count < kMostFrames) times[frame_count++] = (float)milliseconds;
  slept += has_slept;
}

static int compare(const void* a, const void* b) {
  const float one = *(const float*)a, other = *(const float*)b;
  return (one > other) - (one < other);
}
static double at(double part) {
  const int index = (int)ceil(part * frame_count) - 1;
  return frame_count == 0 ? 0 : (double)times[index < 0 ? 0 : index];
}

static void tell_frames(void) {
  qsort(times, (size_t)frame_count, sizeof times[0], compare);
  printf("robot: %d frames, %ld calls of C, %ld block, p50 %.3f, p99 %.3f, longest %.3f ms, %d slept\n", frame_count,
         calls, blocking, at(0.5), at(0.99), at(1), slept);
}

/* ---- Gradients of the first step. ---- */

static distag_tensor *inputs, *layer[2], *targets; /* of that step; layer: weight and bias of the host's */
static int is_checked;

void before_distag_linear(distag_tensor* x, distag_tensor* weight, distag_tensor* bias, distag_tensor** out_y,
                          distag_error* err) {
  (void)out_y, (void)err;
  if (is_checking || is_checked || inputs != NULL || distag_tensor_get_shape(x)[0] != kBatch) return;
  inputs = x, layer[0] = weight, layer[1] = bias;
  distag_tensor_retain(x);
}

void before_distag_mse_loss(distag_tensor* a, distag_tensor* b, distag_tensor** out_y, distag_error* err) {
  (void)a, (void)out_y, (void)err;
  if (is_checking || is_checked || targets != NULL) return;
  targets = b;
  distag_tensor_retain(b);
}

/* A layer as a new learner has it: samples/hosts/learner.c. */
static void create_layer(int index, int64_t outputs, distag_tensor** out_layer, distag_error* err) {
  const int64_t shape[2] = {outputs, kWidth};
  distag_tensor* random = NULL;
  distag_randn((uint64_t)(200 + index), DISTAG_FLOAT32, shape, 2, &random, err);
  distag_mul_scalar(random, 0.25, &out_layer[0], err);
  distag_zeros(DISTAG_FLOAT32, &outputs, 1, &out_layer[1], err);
  distag_tensor_release(random);
}

static double difference(distag_tensor* a, distag_tensor* b, double* largest, distag_error* err) {
  float one[kWidth * kInputs] = {0}, other[kWidth * kInputs] = {0};
  double most = 0;
  distag_tensor_copy_data(a, one, sizeof one, err);
  distag_tensor_copy_data(b, other, sizeof other, err);
  for (int i = 0; i < kWidth * kInputs; ++i) {
    most = fmax(most, fabs((double)one[i] - (double)other[i]));
    *largest = fmax(*largest, fabs((double)other[i]));
  }
  return most;
}

static void check_gradients(distag_context* context, distag_error* err) {
  distag_tensor *copies[2] = {NULL, NULL}, *rest[4] = {NULL, NULL, NULL, NULL};
  distag_tensor *sum = NULL, *h = NULL, *hidden_sum = NULL, *hidden = NULL, *y = NULL, *loss = NULL;
  distag_context* local = NULL;
  distag_gradients *found = NULL, *expected = NULL;
  double most = 0, largest = 0, value = 0;
  create_layer(0, kWidth, &rest[0], err);
  create_layer(2, 1, &rest[2], err);
  for (int i = 0; i < 2; ++i) {
    distag_tensor_create_snapshot(layer[i], &copies[i], err);
    distag_tensor_set_requires_grad(copies[i], 1, err);
  }
  distag_linear(inputs, copies[0], copies[1], &sum, err);
  distag_tanh(sum, &h, err);
  distag_linear(h, rest[0], rest[1], &hidden_sum, err);
  distag_tanh(hidden_sum, &hidden, err);
  distag_linear(hidden, rest[2], rest[3], &y, err);
  distag_mse_loss(y, targets, &loss, err);
  distag_tensor_get_item(loss, &value, err);
  distag_context_create(NULL, &local, err);
  distag_backward(local, &loss, 1, NULL, err);
  distag_get_gradients(local, &expected, err);
  distag_get_gradients(context, &found, err);
  for (int i = 0; i < 2; ++i) {
    most = fmax(most, difference(distag_gradients_find(found, layer[i]), distag_gradients_find(expected, copies[i]),
                                 &largest, err));
  }
  printf("robot: gradients of the first step differ by %.1e, the largest is %.1e, its loss %.4f\n", most, largest,
         value);
  distag_gradients_release(found), distag_gradients_release(expected), distag_context_release(local);
  distag_tensor* made[] = {sum,       h,       hidden_sum, hidden,  y,       loss,   copies[0],
                           copies[1], rest[0], rest[1],    rest[2], rest[3], inputs, targets};
  for (size_t i = 0; i < sizeof made / sizeof made[0]; ++i) distag_tensor_release(made[i]);
}

void before_distag_optimizer_step_async(distag_optimizer* optimizer, distag_context* context,
                                        const distag_call_options* options, distag_future** out_future,
                                        distag_error* err) {
  distag_error problem = DISTAG_ERROR_INIT;
  (void)optimizer, (void)options, (void)out_future, (void)err;
  if (is_checked) return;
  is_checking = 1;
  check_gradients(context, &problem);
  is_checking = 0, is_checked = 1, inputs = targets = NULL;
  if (problem.code != DISTAG_OK) printf("robot: %s\n", problem.message);
}

#endif
