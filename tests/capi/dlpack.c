/* DLPack: the fields and the owner of an export, what an import borrows and refuses. The structs are declared here
 * anew, from the specification. */
#include <pthread.h>
#include <stdlib.h>

#include "capi/check.h"

typedef struct {
  void *data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} described;

struct DLManagedTensor {
  described tensor;
  void *context;
  void (*deleter)(struct DLManagedTensor *);
};

struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void *context;
  void (*deleter)(struct DLManagedTensorVersioned *);
  uint64_t flags;
  described tensor;
};

enum { kReadOnly = 1, kIsCopied = 2, kCpu = 1, kInt = 0, kUint = 1, kFloat = 2, kBool = 6 };

static distag_error err = DISTAG_ERROR_INIT;
static const double kData[] = {1, 2, 3, 4, 5, 6}, kOther[] = {7, 7, 7, 7, 7, 7};
static const int64_t kShape[] = {2, 3};

static distag_tensor *make(void) {
  distag_tensor *x = NULL;
  CHECK_OK(distag_tensor_create(kData, sizeof kData, DISTAG_FLOAT64, kShape, 2, &x, &err));
  return x;
}

/* ---- exports ---- */

static void *end_export(void *managed) {
  struct DLManagedTensorVersioned *owner = managed;
  owner->deleter(owner);
  return NULL;
}

static void shared_export(void) {
  distag_tensor *x = make(), *view = NULL;
  struct DLManagedTensorVersioned *managed = NULL;
  pthread_t other;
  CHECK_OK(distag_transpose(x, 0, 1, &view, &err));
  const uint64_t before = distag_get_handle_count();
  CHECK_OK(distag_tensor_export_dlpack(view, 0, &managed, &err));
  CHECK_INT(distag_get_handle_count(), before + 1); /* an export counts */
  CHECK(managed->version.major == 1 && managed->flags == kReadOnly);
  const described *told = &managed->tensor;
  CHECK(told->device.type == kCpu && told->device.id == 0 && told->byte_offset == 0);
  CHECK(told->dtype.code == kFloat && told->dtype.bits == 64 && told->dtype.lanes == 1);
  CHECK(told->ndim == 2 && told->shape[0] == 3 && told->shape[1] == 2);
  CHECK(told->strides[0] == 1 && told->strides[1] == 3);
  CHECK(told->data == distag_tensor_get_data(x)); /* nothing is copied */
  CHECK_OK(distag_tensor_write(x, kOther, sizeof kOther, &err));
  CHECK(memcmp(told->data, kData, sizeof kData) == 0); /* and nothing changes */
  distag_tensor_release(view);
  distag_tensor_release(x);
  CHECK(memcmp(told->data, kData, sizeof kData) == 0);
  CHECK_INT(pthread_create(&other, NULL, end_export, managed), 0);
  pthread_join(other, NULL);
  CHECK_INT(distag_get_handle_count(), 0);
}

static void copied_export(void) {
  distag_tensor *x = make();
  double item = 0;
  struct DLManagedTensorVersioned *managed = NULL;
  CHECK_OK(distag_tensor_export_dlpack(x, DISTAG_DLPACK_COPY, &managed, &err));
  CHECK_INT(managed->flags, kIsCopied);
  ((double *)managed->tensor.data)[0] = 9; /* the consumer's to write */
  distag_tensor *row = NULL;
  CHECK_OK(distag_sum(x, NULL, 0, 0, &row, &err));
  CHECK_OK(distag_tensor_get_item(row, &item, &err));
  CHECK_NEAR(item, 21);
  managed->deleter(managed);
  CHECK_OK(distag_tensor_export_dlpack(x, DISTAG_DLPACK_SHARE, &managed, &err));
  CHECK(managed->flags == kReadOnly && managed->tensor.data == distag_tensor_get_data(x));
  managed->deleter(managed);
  distag_tensor_release(row);
  distag_tensor_release(x);
}

static void legacy_export(void) {
  distag_tensor *x = make();
  struct DLManagedTensor *managed = NULL;
  CHECK_OK(distag_tensor_export_dlpack_legacy(x, 0, &managed, &err));
  CHECK(managed->tensor.data != distag_tensor_get_data(x)); /* no mark says read-only, so it is a copy */
  CHECK(memcmp(managed->tensor.data, kData, sizeof kData) == 0 && managed->tensor.ndim == 2);
  managed->deleter(managed);
  CHECK_OK(distag_tensor_export_dlpack_legacy(x, DISTAG_DLPACK_SHARE, &managed, &err));
  CHECK(managed->tensor.data == distag_tensor_get_data(x));
  CHECK_OK(distag_tensor_write(x, kOther, sizeof kOther, &err));
  CHECK(memcmp(managed->tensor.data, kData, sizeof kData) == 0);
  distag_tensor_release(x);
  managed->deleter(managed);
}

static void exported_dtype(distag_dtype dtype, int code, int bits) {
  const int64_t none[] = {0, 2};
  distag_tensor *scalar = NULL, *empty = NULL;
  struct DLManagedTensorVersioned *managed = NULL;
  CHECK_OK(distag_full(1, dtype, NULL, 0, &scalar, &err));
  CHECK_OK(distag_zeros(dtype, none, 2, &empty, &err));
  CHECK_OK(distag_tensor_export_dlpack(scalar, 0, &managed, &err));
  CHECK(managed->tensor.dtype.code == code && managed->tensor.dtype.bits == bits && managed->tensor.ndim == 0);
  managed->deleter(managed);
  CHECK_OK(distag_tensor_export_dlpack(empty, 0, &managed, &err));
  CHECK(managed->tensor.data == NULL && managed->tensor.shape[0] == 0);
  managed->deleter(managed);
  distag_tensor_release(empty);
  distag_tensor_release(scalar);
}

static void refused_exports(void) {
  distag_tensor *x = make();
  struct DLManagedTensorVersioned *managed = NULL;
  struct DLManagedTensor *legacy = NULL;
  CHECK_FAILS(distag_tensor_export_dlpack(x, 4, &managed, &err), DISTAG_E_UNSUPPORTED, "flags");
  CHECK_FAILS(distag_tensor_export_dlpack(x, 3, &managed, &err), DISTAG_E_INVALID_ARGUMENT, "one of them");
  CHECK_FAILS(distag_tensor_export_dlpack_legacy(x, 8, &legacy, &err), DISTAG_E_UNSUPPORTED, "flags");
  CHECK_FAILS(distag_tensor_export_dlpack_legacy(x, 3, &legacy, &err), DISTAG_E_INVALID_ARGUMENT, "one of them");
  CHECK(managed == NULL && legacy == NULL);
  distag_tensor_release(x);
}

/* The values of a graph, and memory of the host that outlives its tensor by the export. */
static void count_destroy(void *user_data) { ++*(int *)user_data; }

static void exports_of_others(void) {
  static const float data[] = {1, 2};
  const int64_t two[] = {2};
  int ended = 0;
  distag_tensor *x = NULL, *y = NULL, *borrowed = NULL;
  struct DLManagedTensorVersioned *managed = NULL;
  CHECK_OK(distag_ones(DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_OK(distag_mul_scalar(x, 3, &y, &err));
  CHECK_OK(distag_tensor_export_dlpack(y, 0, &managed, &err));
  CHECK_NEAR(*(const float *)managed->tensor.data, 3);
  managed->deleter(managed);
  distag_tensor_release(y);
  distag_tensor_release(x);
  CHECK_OK(distag_tensor_create_borrowed(data, sizeof data, DISTAG_FLOAT32, two, NULL, 1, &ended, count_destroy,
                                         &borrowed, &err));
  CHECK_OK(distag_tensor_export_dlpack(borrowed, 0, &managed, &err));
  distag_tensor_release(borrowed);
  CHECK(ended == 0 && managed->tensor.data == data);
  managed->deleter(managed);
  CHECK_INT(ended, 1);
}

/* ---- imports ---- */

static int deleted;

static void delete_versioned(struct DLManagedTensorVersioned *self) {
  CHECK(self->context == &deleted);
  ++deleted;
}

static void delete_legacy(struct DLManagedTensor *self) {
  CHECK(self->context == &deleted);
  ++deleted;
}

static double memory[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static int64_t shape[] = {2, 3}, strides[] = {3, 1};

static struct DLManagedTensorVersioned good(void) {
  struct DLManagedTensorVersioned managed = {
      {1, 3}, &deleted, delete_versioned, 0, {memory, {kCpu, 0}, 2, {kFloat, 64, 1}, shape, strides, 0}};
  shape[0] = 2, shape[1] = 3, strides[0] = 3, strides[1] = 1;
  deleted = 0;
  return managed;
}

static void imports(void) {
  struct DLManagedTensorVersioned managed = good();
  distag_tensor *x = NULL, *view = NULL;
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  double seen[6] = {0};
  CHECK_OK(distag_tensor_import_dlpack(&managed, &x, &err));
  CHECK_OK(distag_tensor_get_info(x, &info, &err));
  CHECK_INT(info.flags, DISTAG_TENSOR_BORROWED | DISTAG_TENSOR_CONTIGUOUS);
  CHECK(distag_tensor_get_data(x) == memory);
  CHECK_FAILS(distag_tensor_write(x, kOther, sizeof kOther, &err), DISTAG_E_INVALID_STATE, "borrows");
  CHECK_OK(distag_transpose(x, 0, 1, &view, &err));
  distag_tensor_release(x);
  CHECK_INT(deleted, 0); /* the view needs it */
  distag_tensor_release(view);
  CHECK_INT(deleted, 1);

  managed = good(); /* from behind, with an offset: 5 3 1, 6 4 2 */
  managed.tensor.byte_offset = 5 * sizeof(double);
  strides[0] = 1, strides[1] = -2;
  CHECK_OK(distag_tensor_import_dlpack(&managed, &x, &err));
  CHECK_OK(distag_tensor_copy_data(x, seen, sizeof seen, &err));
  CHECK(seen[0] == 5 && seen[2] == 1 && seen[3] == 6 && seen[5] == 2);
  distag_tensor_release(x);
  CHECK_INT(deleted, 1);

  managed = good(); /* without strides, and without a deleter */
  managed.tensor.strides = NULL;
  managed.deleter = NULL;
  CHECK_OK(distag_tensor_import_dlpack(&managed, &x, &err));
  CHECK_INT(distag_tensor_get_strides(x)[0], 3);
  distag_tensor_release(x);

  managed = good(); /* strides of a dimension of size 1 are anything */
  shape[0] = 1, strides[0] = INT64_MIN;
  CHECK_OK(distag_tensor_import_dlpack(&managed, &x, &err));
  CHECK_INT(distag_tensor_get_strides(x)[0], 3);
  distag_tensor_release(x);

  managed = good(); /* no elements, no memory */
  shape[1] = 0;
  managed.tensor.data = NULL;
  CHECK_OK(distag_tensor_import_dlpack(&managed, &x, &err));
  CHECK_INT(distag_tensor_get_count(x), 0);
  distag_tensor_release(x);
  CHECK_INT(deleted, 1);

  managed = good(); /* a scalar */
  managed.tensor.ndim = 0;
  managed.tensor.shape = managed.tensor.strides = NULL;
  CHECK_OK(distag_tensor_import_dlpack(&managed, &x, &err));
  CHECK_INT(distag_tensor_get_count(x), 1);
  distag_tensor_release(x);
}

static void legacy_import(void) {
  struct DLManagedTensor managed = {good().tensor, &deleted, delete_legacy};
  distag_tensor *x = NULL;
  CHECK_OK(distag_tensor_import_dlpack_legacy(&managed, &x, &err));
  CHECK(distag_tensor_get_data(x) == memory && deleted == 0);
  distag_tensor_release(x);
  CHECK_INT(deleted, 1);
  managed.tensor.device.type = 2;
  CHECK_FAILS(distag_tensor_import_dlpack_legacy(&managed, &x, &err), DISTAG_E_UNSUPPORTED, "CPU");
  CHECK_INT(deleted, 1); /* it still belongs to the giver */
}

/* An export can be imported again, with its values and its memory. */
static void there_and_back(void) {
  distag_tensor *x = make(), *back = NULL;
  struct DLManagedTensorVersioned *managed = NULL;
  double seen[6] = {0};
  CHECK_OK(distag_tensor_export_dlpack(x, 0, &managed, &err));
  CHECK_OK(distag_tensor_import_dlpack(managed, &back, &err));
  distag_tensor_release(x);
  CHECK_OK(distag_tensor_copy_data(back, seen, sizeof seen, &err));
  CHECK(memcmp(seen, kData, sizeof seen) == 0);
  distag_tensor_release(back);
  CHECK_INT(distag_get_handle_count(), 0);
}

/* An import that must fail, make nothing, and not run the deleter. */
static void refused(struct DLManagedTensorVersioned managed, distag_status status, const char *word, int line) {
  distag_tensor *x = (distag_tensor *)&err;
  err.code = DISTAG_OK;
  check_fails(distag_tensor_import_dlpack(&managed, &x, &err), status, &err, word, __FILE__, line, "import");
  check_true(x == NULL, __FILE__, line, "nothing is made");
  check_int(deleted, 0, __FILE__, line, "deleted");
}

#define REFUSED(change, status, word)                 \
  do {                                                \
    struct DLManagedTensorVersioned managed = good(); \
    change;                                           \
    refused(managed, status, word, __LINE__);         \
  } while (0)

static void hostile_imports(void) {
  static unsigned char bools[] = {0, 1, 2, 1, 0, 1};
  const distag_status invalid = DISTAG_E_INVALID_ARGUMENT, unsupported = DISTAG_E_UNSUPPORTED;
  REFUSED(managed.version.major = 2, unsupported, "DLPack 2.3");
  REFUSED(managed.version.major = 0, unsupported, "DLPack 0.3");
  REFUSED(managed.tensor.device.type = 2, unsupported, "CPU");
  REFUSED(managed.tensor.device.type = 0, unsupported, "CPU");
  REFUSED(managed.tensor.dtype.bits = 16, unsupported, "float16 of DLPack is not supported: cast it to float32");
  REFUSED(managed.tensor.dtype.code = 200, unsupported, "type 200 of bits 64");
  REFUSED(managed.tensor.dtype.lanes = 2, unsupported, "float64 in vectors of 2");
  REFUSED(managed.tensor.dtype.lanes = 0, unsupported, "in vectors of 0");
  REFUSED((managed.tensor.dtype.code = kUint, managed.tensor.dtype.bits = 8), unsupported, "uint8");
  REFUSED(managed.tensor.ndim = -1, invalid, "ndim");
  REFUSED(managed.tensor.ndim = 17, invalid, "ndim");
  REFUSED(managed.tensor.ndim = INT32_MAX, invalid, "ndim");
  REFUSED(managed.tensor.shape = NULL, invalid, "shape is NULL");
  REFUSED(managed.tensor.data = NULL, invalid, "data is NULL");
  REFUSED(managed.tensor.data = (char *)memory + 4, invalid, "aligned");
  REFUSED(managed.tensor.byte_offset = 1, invalid, "aligned");
  REFUSED(managed.tensor.byte_offset = UINT64_MAX, invalid, "outside");
  REFUSED(managed.tensor.byte_offset = (uint64_t)1 << 63, invalid, "outside");
  REFUSED(shape[0] = -2, invalid, "negative");
  REFUSED((shape[0] = -2, managed.tensor.strides = NULL), invalid, "negative");
  REFUSED((shape[0] = INT64_MAX, shape[1] = 2), invalid, "more elements");
  REFUSED((shape[0] = INT64_MAX / 8, managed.tensor.strides = NULL), invalid, "more elements");
  REFUSED(strides[0] = INT64_MAX, invalid, "outside");
  REFUSED(strides[0] = INT64_MIN, invalid, "outside");
  REFUSED((strides[0] = INT64_MAX / 8, strides[1] = INT64_MAX / 8), invalid, "outside");
  REFUSED(strides[0] = -(INT64_MAX / 16), invalid, "outside");
  REFUSED((managed.tensor.data = bools, managed.tensor.dtype.code = kBool, managed.tensor.dtype.bits = 8), invalid,
          "0 or 1");
}

/* Only elements have to be bools: what lies between them may be anything. */
static void strided_bools(void) {
  static unsigned char bytes[] = {0, 9, 1, 9, 1, 9};
  struct DLManagedTensorVersioned managed = good();
  distag_tensor *x = NULL;
  managed.tensor.ndim = 1;
  shape[0] = 3, strides[0] = 2;
  managed.tensor.data = bytes;
  managed.tensor.dtype.code = kBool;
  managed.tensor.dtype.bits = 8;
  CHECK_OK(distag_tensor_import_dlpack(&managed, &x, &err));
  distag_tensor_release(x);
  CHECK_INT(deleted, 1);
}

static void nulls(void) {
  struct DLManagedTensorVersioned managed = good(), *versioned = NULL;
  struct DLManagedTensor old = {managed.tensor, &deleted, delete_legacy}, *legacy = NULL;
  distag_tensor *x = make(), *made = NULL;
  CHECK_FAILS(distag_tensor_export_dlpack(NULL, 0, &versioned, &err), DISTAG_E_INVALID_ARGUMENT, "tensor is NULL");
  CHECK_FAILS(distag_tensor_export_dlpack(x, 0, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_managed is NULL");
  CHECK_FAILS(distag_tensor_export_dlpack_legacy(NULL, 0, &legacy, &err), DISTAG_E_INVALID_ARGUMENT, "is NULL");
  CHECK_FAILS(distag_tensor_export_dlpack_legacy(x, 0, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "is NULL");
  CHECK_FAILS(distag_tensor_import_dlpack(NULL, &made, &err), DISTAG_E_INVALID_ARGUMENT, "managed is NULL");
  CHECK_FAILS(distag_tensor_import_dlpack(&managed, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_tensor is NULL");
  CHECK_FAILS(distag_tensor_import_dlpack_legacy(NULL, &made, &err), DISTAG_E_INVALID_ARGUMENT, "managed is NULL");
  CHECK_FAILS(distag_tensor_import_dlpack_legacy(&old, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_tensor is NULL");
  distag_error_set(&err, 1999, "kept"); /* a chain: export, then import */
  CHECK_INT(distag_tensor_export_dlpack(NULL, 0, &versioned, &err), 1999);
  CHECK_INT(distag_tensor_import_dlpack(versioned, &made, &err), 1999);
  CHECK_INT(deleted, 0);
  distag_tensor_release(x);
}

int main(void) {
  shared_export();
  copied_export();
  legacy_export();
  exported_dtype(DISTAG_FLOAT32, kFloat, 32);
  exported_dtype(DISTAG_FLOAT64, kFloat, 64);
  exported_dtype(DISTAG_INT64, kInt, 64);
  exported_dtype(DISTAG_BOOL, kBool, 8);
  refused_exports();
  exports_of_others();
  imports();
  legacy_import();
  there_and_back();
  hostile_imports();
  strided_bools();
  nulls();
  return check_end();
}
