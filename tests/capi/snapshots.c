/* Tensors described in one call, and snapshots: values of one moment, also beside writers. */
#include <pthread.h>
#include <stdatomic.h>

#include "capi/check.h"

enum { kCount = 32 << 10, kSnapshots = 400, kReaders = 3, kWriters = 2 };

static distag_error err = DISTAG_ERROR_INIT;

static void count_destroy(void *user_data) { ++*(int *)user_data; }

static distag_tensor_info info_of(distag_tensor *tensor) {
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  CHECK_OK(distag_tensor_get_info(tensor, &info, &err));
  CHECK_INT(info.struct_size, sizeof info);
  CHECK_INT(info.id, distag_tensor_get_id(tensor));
  CHECK_INT(info.dtype, distag_tensor_get_dtype(tensor));
  CHECK_INT(info.ndim, distag_tensor_get_ndim(tensor));
  CHECK_INT(info.count, distag_tensor_get_count(tensor));
  CHECK_INT(info.size, distag_tensor_get_size(tensor));
  CHECK_INT(info.requires_grad, distag_tensor_get_requires_grad(tensor));
  CHECK(info.shape == distag_tensor_get_shape(tensor) && info.strides == distag_tensor_get_strides(tensor));
  return info;
}

static void described(void) {
  const int64_t shape[] = {2, 3}, none[] = {0, 3};
  static const float data[6] = {0};
  distag_tensor *x = NULL, *view = NULL, *empty = NULL, *scalar = NULL, *borrowed = NULL, *result = NULL;
  CHECK_OK(distag_zeros(DISTAG_FLOAT64, shape, 2, &x, &err));
  CHECK_OK(distag_transpose(x, 0, 1, &view, &err));
  CHECK_OK(distag_zeros(DISTAG_INT64, none, 2, &empty, &err));
  CHECK_OK(distag_full(1, DISTAG_BOOL, NULL, 0, &scalar, &err));
  CHECK_OK(
      distag_tensor_create_borrowed(data, sizeof data, DISTAG_FLOAT32, shape, NULL, 2, NULL, NULL, &borrowed, &err));
  distag_tensor_info info = info_of(x);
  CHECK(info.dtype == DISTAG_FLOAT64 && info.ndim == 2 && info.count == 6 && info.size == 48);
  CHECK(info.shape[0] == 2 && info.shape[1] == 3 && info.strides[0] == 3 && info.strides[1] == 1);
  CHECK_INT(info.flags, DISTAG_TENSOR_CONTIGUOUS);
  info = info_of(view);
  CHECK(info.shape[0] == 3 && info.strides[0] == 1 && info.strides[1] == 3);
  CHECK_INT(info.flags, 0);
  info = info_of(empty);
  CHECK(info.count == 0 && info.size == 0 && info.ndim == 2);
  info = info_of(scalar);
  CHECK(info.count == 1 && info.size == 1 && info.ndim == 0);
  CHECK_INT(info_of(borrowed).flags, DISTAG_TENSOR_BORROWED | DISTAG_TENSOR_CONTIGUOUS);
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK(info_of(x).requires_grad == 1 && info_of(x).flags == DISTAG_TENSOR_CONTIGUOUS);
  CHECK_OK(distag_neg(x, &result, &err));
  CHECK_INT(info_of(result).flags, DISTAG_TENSOR_CONTIGUOUS | DISTAG_TENSOR_HAS_HISTORY);
  distag_tensor_release(result);
  distag_tensor_release(borrowed);
  distag_tensor_release(scalar);
  distag_tensor_release(empty);
  distag_tensor_release(view);
  distag_tensor_release(x);
}

/* A struct of an unknown size, a struct of a later version, and an invalid tensor. */
static void described_wrongly(void) {
  struct {
    distag_tensor_info head;
    uint64_t tail;
  } later = {DISTAG_TENSOR_INFO_INIT, 7};
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  distag_tensor *x = NULL;
  distag_value *text = NULL;
  CHECK_OK(distag_zeros(DISTAG_FLOAT64, NULL, 0, &x, &err));
  CHECK_OK(distag_value_create_text("x", &text, &err));
  later.head.struct_size = sizeof later;
  CHECK_OK(distag_tensor_get_info(x, &later.head, &err));
  CHECK(later.head.count == 1 && later.head.struct_size == sizeof later && later.tail == 0);
  info.struct_size = 8;
  info.count = 9;
  CHECK_FAILS(distag_tensor_get_info(x, &info, &err), DISTAG_E_INVALID_ARGUMENT, "distag_tensor_info");
  CHECK_INT(info.count, 9); /* nothing of it is used */
  info.struct_size = sizeof info;
  CHECK_FAILS(distag_tensor_get_info((distag_tensor *)text, &info, &err), DISTAG_E_INVALID_ARGUMENT, "a value handle");
  CHECK_INT(info.count, 0);
  distag_tensor_release(x);
  CHECK_FAILS(distag_tensor_create_snapshot((distag_tensor *)text, &x, &err), DISTAG_E_INVALID_ARGUMENT, "a value");
  CHECK(x == NULL);
  distag_value_release(text);
}

static double item_at(distag_tensor *tensor, size_t index) {
  double data[6] = {0};
  CHECK_OK(distag_tensor_copy_data(tensor, data, sizeof data, &err));
  return data[index];
}

static void either_is_written(void) {
  const double data[] = {1, 2, 3, 4, 5, 6}, other[] = {7, 8, 9, 10, 11, 12};
  const int64_t shape[] = {2, 3};
  distag_tensor *x = NULL, *view = NULL, *before = NULL, *of_view = NULL;
  CHECK_OK(distag_tensor_create(data, sizeof data, DISTAG_FLOAT64, shape, 2, &x, &err));
  CHECK_OK(distag_transpose(x, 0, 1, &view, &err));
  CHECK_OK(distag_tensor_create_snapshot(x, &before, &err));
  CHECK_OK(distag_tensor_create_snapshot(view, &of_view, &err));
  CHECK(distag_tensor_get_data(before) == distag_tensor_get_data(x)); /* nothing is copied yet */
  CHECK(distag_tensor_get_id(before) != distag_tensor_get_id(x));
  const double *lent = distag_tensor_get_data(before);
  CHECK_OK(distag_tensor_write(x, other, sizeof other, &err));
  CHECK(distag_tensor_get_data(before) == lent && lent[1] == 2); /* the pointer stays good */
  CHECK_NEAR(item_at(x, 1), 8);
  CHECK_NEAR(item_at(view, 1), 10);
  CHECK_NEAR(item_at(of_view, 1), 4);
  CHECK_OK(distag_tensor_write(before, other, sizeof other, &err)); /* a snapshot may be written, too */
  CHECK_NEAR(item_at(before, 0), 7);
  CHECK_NEAR(item_at(of_view, 0), 1);
  distag_tensor_release(view);
  distag_tensor_release(x);
  CHECK_NEAR(item_at(of_view, 5), 6); /* outlives the tensor */
  distag_tensor_release(before);
  distag_tensor_release(of_view);
}

/* Memory of the host stays as it is, and lent, until the snapshot is gone. */
static void of_borrowed_memory(void) {
  double data[] = {1, 2, 3, 4, 5, 6};
  const double other[] = {0, 0, 0, 0, 0, 0};
  const int64_t shape[] = {6};
  int ended = 0;
  distag_tensor *x = NULL, *first = NULL, *second = NULL;
  CHECK_OK(distag_tensor_create_borrowed(data, sizeof data, DISTAG_FLOAT64, shape, NULL, 1, &ended, count_destroy, &x,
                                         &err));
  CHECK_OK(distag_tensor_create_snapshot(x, &first, &err));
  CHECK_OK(distag_tensor_create_snapshot(first, &second, &err));
  distag_tensor_release(x);
  CHECK(distag_tensor_get_data(second) == data);
  CHECK_OK(distag_tensor_write(first, other, sizeof other, &err));
  CHECK(data[0] == 1 && distag_tensor_get_data(first) != data);
  distag_tensor_release(first);
  CHECK_INT(ended, 0);
  distag_tensor_release(second);
  CHECK_INT(ended, 1);
}

static void without_history(void) {
  distag_tensor *x = NULL, *y = NULL, *snapshot = NULL;
  CHECK_OK(distag_ones(DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_OK(distag_exp(x, &y, &err));
  CHECK_OK(distag_tensor_create_snapshot(y, &snapshot, &err));
  CHECK(info_of(snapshot).requires_grad == 0 && info_of(snapshot).flags == DISTAG_TENSOR_CONTIGUOUS);
  distag_tensor_release(snapshot);
  distag_tensor_release(y);
  distag_tensor_release(x);
}

/* ---- beside writers: all elements are equal before and after each write ---- */

static distag_tensor *shared;
static atomic_int readers_left, mixtures;

static void *write_all(void *user_data) {
  distag_error told = DISTAG_ERROR_INIT;
  static float data[kWriters][kCount];
  float *mine = data[(size_t)user_data];
  for (int k = 0; atomic_load(&readers_left) > 0; ++k) {
    for (int i = 0; i < kCount; ++i) mine[i] = (float)(k % 1000);
    if (distag_tensor_write(shared, mine, sizeof data[0], &told) != DISTAG_OK) atomic_fetch_add(&mixtures, 1);
  }
  return NULL;
}

static int is_whole(const float *data, float value) {
  for (int i = 0; i < kCount; ++i) {
    if (data[i] != value) return 0;
  }
  return 1;
}

static void *take_all(void *unused) {
  distag_error told = DISTAG_ERROR_INIT;
  distag_tensor *kept[4] = {NULL};
  float first[4] = {0};
  for (int k = 0; k < kSnapshots; ++k) {
    distag_tensor **place = &kept[k % 4];
    if (*place != NULL && !is_whole(distag_tensor_get_data(*place), first[k % 4])) atomic_fetch_add(&mixtures, 1);
    distag_tensor_release(*place);
    if (distag_tensor_create_snapshot(shared, place, &told) != DISTAG_OK) break;
    const float *data = distag_tensor_get_data(*place);
    first[k % 4] = data[0];
    if (!is_whole(data, data[0])) atomic_fetch_add(&mixtures, 1);
  }
  for (int i = 0; i < 4; ++i) distag_tensor_release(kept[i]);
  if (told.code != DISTAG_OK) atomic_fetch_add(&mixtures, 1);
  atomic_fetch_sub(&readers_left, 1);
  return unused;
}

static void beside_writers(void) {
  const int64_t shape[] = {kCount};
  pthread_t writers[kWriters], readers[kReaders];
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, shape, 1, &shared, &err));
  atomic_store(&readers_left, kReaders);
  for (size_t i = 0; i < kWriters; ++i) pthread_create(&writers[i], NULL, write_all, (void *)i);
  for (int i = 0; i < kReaders; ++i) pthread_create(&readers[i], NULL, take_all, NULL);
  for (int i = 0; i < kReaders; ++i) pthread_join(readers[i], NULL);
  for (int i = 0; i < kWriters; ++i) pthread_join(writers[i], NULL);
  CHECK_INT(atomic_load(&mixtures), 0);
  distag_tensor_release(shared);
}

int main(void) {
  described();
  described_wrongly();
  either_is_written();
  of_borrowed_memory();
  without_history();
  beside_writers();
  return check_end();
}
