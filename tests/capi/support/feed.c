#include "capi/support/feed.h"

#include <stdlib.h>
#include <string.h>

void feed_init(feed *data) {
  memset(data, 0, sizeof *data);
  data->batches = data->fails_at = data->widens_at = data->cuts_at = data->blocks_at = -1;
  pthread_mutex_init(&data->mutex, NULL);
  pthread_cond_init(&data->changed, NULL);
}

void feed_end(feed *data) {
  pthread_cond_destroy(&data->changed);
  pthread_mutex_destroy(&data->mutex);
}

void feed_open(feed *data) {
  pthread_mutex_lock(&data->mutex);
  data->is_open = 1;
  pthread_cond_broadcast(&data->changed);
  pthread_mutex_unlock(&data->mutex);
}

void feed_await_blocked(feed *data) {
  pthread_mutex_lock(&data->mutex);
  while (data->blocked == 0) pthread_cond_wait(&data->changed, &data->mutex);
  pthread_mutex_unlock(&data->mutex);
}

void feed_await_destroyed(feed *data) {
  pthread_mutex_lock(&data->mutex);
  while (data->destroyed == 0) pthread_cond_wait(&data->changed, &data->mutex);
  pthread_mutex_unlock(&data->mutex);
}

int feed_get_destroyed(feed *data) {
  pthread_mutex_lock(&data->mutex);
  const int destroyed = data->destroyed;
  pthread_mutex_unlock(&data->mutex);
  return destroyed;
}

void feed_destroy(void *user_data) {
  feed *data = user_data;
  pthread_mutex_lock(&data->mutex);
  ++data->destroyed;
  pthread_cond_broadcast(&data->changed);
  pthread_mutex_unlock(&data->mutex);
}

static void enter(feed *data, uint64_t number, const int64_t *rows, size_t row_count) {
  pthread_mutex_lock(&data->mutex);
  ++data->calls;
  data->calls_after += data->destroyed;
  if (++data->running > data->most) data->most = data->running;
  for (size_t i = 0; data->asked != NULL && rows != NULL && i < row_count; ++i) ++data->asked[rows[i]];
  if (data->blocks_at == (int64_t)number) {
    ++data->blocked;
    pthread_cond_broadcast(&data->changed);
    while (!data->is_open) pthread_cond_wait(&data->changed, &data->mutex);
    --data->blocked;
  }
  pthread_mutex_unlock(&data->mutex);
}

static void leave(feed *data) {
  pthread_mutex_lock(&data->mutex);
  --data->running;
  pthread_mutex_unlock(&data->mutex);
}

static distag_status make(const int64_t *rows, size_t count, int64_t columns, distag_value **out_batch,
                          distag_error *err) {
  int64_t *x = malloc((count * (size_t)columns + 1) * sizeof *x);
  double *y = malloc((count + 1) * sizeof *y);
  for (size_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < columns; ++c) x[(int64_t)i * columns + c] = 2 * rows[i] + c;
    y[i] = (double)rows[i];
  }
  const int64_t shape[] = {(int64_t)count, columns};
  distag_tensor *tx = NULL, *ty = NULL;
  distag_tensor_create(x, count * (size_t)columns * sizeof *x, DISTAG_INT64, shape, 2, &tx, err);
  distag_tensor_create(y, count * sizeof *y, DISTAG_FLOAT64, shape, 1, &ty, err);
  const char *const keys[] = {"x", "y"};
  distag_value *const items[] = {distag_tensor_as_value(tx), distag_tensor_as_value(ty)};
  const distag_status status = distag_value_create_map(keys, items, 2, out_batch, err);
  distag_tensor_release(tx);
  distag_tensor_release(ty);
  free(x);
  free(y);
  return status;
}

static distag_status give(feed *data, uint64_t number, const int64_t *rows, size_t row_count, distag_value **out_batch,
                          distag_error *err) {
  int64_t own[kFedRows];
  if (data->fails_at == (int64_t)number) return distag_error_set(err, 1007, "the disk is on fire");
  if (data->batches >= 0 && (int64_t)number >= data->batches) return DISTAG_OK;
  if (rows == NULL) {
    row_count = (size_t)(data->count == 0 && data->first == 0 ? kFedRows : data->count);
    for (size_t i = 0; i < row_count; ++i) own[i] = (int64_t)number * kFedRows + data->first + (int64_t)i;
    rows = own;
  }
  const size_t skipped = data->cuts_at == (int64_t)number ? 1 : 0;
  return make(rows + skipped, row_count - skipped, data->widens_at == (int64_t)number ? 3 : 2, out_batch, err);
}

distag_status feed_source(void *user_data, uint64_t number, const int64_t *rows, size_t row_count,
                          distag_value **out_batch, distag_error *err) {
  feed *data = user_data;
  enter(data, number, rows, row_count);
  const distag_status status = give(data, number, rows, row_count, out_batch, err);
  leave(data);
  return status;
}
