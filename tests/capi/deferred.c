/* Deferred tensors: options, their values beside those of the plain ops, which call makes them and when, every failure,
 * and the end of what the host gave. */
#include <pthread.h>
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/members.h"

enum { kUnexplained = 1999 }; /* fails without a message */
enum { kRows = 6, kColumns = 5, kCount = kRows * kColumns };

static const int64_t kShape[] = {kRows, kColumns};

/* Counts its calls, and writes 10 times the row plus the column. */
typedef struct source {
  pthread_mutex_t mutex;
  int calls, destroyed;
  distag_status fails;  /* until it is 0 */
  distag_tensor *reads; /* nullable: reads it first */
  distag_status answer; /* of that */
} source;

static const source kSource = {PTHREAD_MUTEX_INITIALIZER, 0, 0, DISTAG_OK, NULL, DISTAG_OK};

static distag_status write_box(void *user_data, const int64_t *offset, const int64_t *extent, size_t ndim, void *buffer,
                               size_t size, distag_error *err) {
  source *mine = user_data;
  pthread_mutex_lock(&mine->mutex);
  ++mine->calls;
  pthread_mutex_unlock(&mine->mutex);
  CHECK(ndim == 2 && err != NULL && err->code == DISTAG_OK);
  CHECK_INT(size, (size_t)(extent[0] * extent[1]) * sizeof(float));
  if (mine->reads != NULL) {
    float all[kCount];
    mine->answer = distag_tensor_copy_data(mine->reads, all, sizeof all, err);
    if (mine->answer != DISTAG_OK) return mine->answer;
  }
  if (mine->fails == kUnexplained) return kUnexplained;
  if (mine->fails != DISTAG_OK) return distag_error_set(err, mine->fails, "the file is gone");
  float *next = buffer;
  for (int64_t row = 0; row < extent[0]; ++row) {
    for (int64_t column = 0; column < extent[1]; ++column) {
      *next++ = (float)(10 * (offset[0] + row) + offset[1] + column);
    }
  }
  return DISTAG_OK;
}

static void count_destroy(void *user_data) { ++((source *)user_data)->destroyed; }

static distag_deferred_options from(source *mine) {
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  options.init = DISTAG_INIT_SOURCE;
  options.source = write_box;
  options.user_data = mine;
  options.destroy = count_destroy;
  return options;
}

static distag_tensor *make(const distag_deferred_options *options, distag_dtype dtype) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *tensor = NULL;
  CHECK_OK(distag_tensor_create_deferred(dtype, kShape, 2, options, &tensor, &err));
  return tensor;
}

static distag_tensor *make_from(source *mine) {
  const distag_deferred_options options = from(mine);
  return make(&options, DISTAG_FLOAT32);
}

static int is_deferred(distag_tensor *tensor) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  CHECK_OK(distag_tensor_get_info(tensor, &info, &err));
  return (info.flags & DISTAG_TENSOR_DEFERRED) != 0;
}

static int has_source_values(distag_tensor *tensor) {
  distag_error err = DISTAG_ERROR_INIT;
  float all[kCount] = {0};
  if (!CHECK_OK(distag_tensor_copy_data(tensor, all, sizeof all, &err))) return 0;
  for (int i = 0; i < kCount; ++i) {
    if (all[i] != (float)(10 * (i / kColumns) + i % kColumns)) return 0;
  }
  return 1;
}

/* The number of this key after "deferred" in the report of handles; -1: the report does not have it. */
static int64_t reported(const char *key) {
  static char text[4096];
  distag_error err = DISTAG_ERROR_INIT;
  char quoted[64];
  size_t size = 0;
  CHECK_OK(distag_copy_handle_report(text, sizeof text, &size, &err));
  CHECK(text[size - 1] == '}');
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  const char *deferred = strstr(text, "\"deferred\":{");
  const char *found = deferred == NULL ? NULL : strstr(deferred, quoted);
  return found == NULL ? -1 : strtoll(found + strlen(quoted), NULL, 10);
}

static void properties(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *tensor = NULL;
  const int64_t huge[] = {1 << 20, 1 << 20}, too_large[] = {INT64_C(1) << 40, INT64_C(1) << 40};
  CHECK_INT(reported("alive"), -1); /* not reported before the first one */
  CHECK_OK(distag_tensor_create_deferred(DISTAG_FLOAT32, huge, 2, NULL, &tensor, &err));
  CHECK_INT(reported("alive"), 1);
  CHECK_INT(distag_tensor_get_dtype(tensor), DISTAG_FLOAT32);
  CHECK_INT(distag_tensor_get_ndim(tensor), 2);
  CHECK_INT(distag_tensor_get_shape(tensor)[1], 1 << 20);
  CHECK_INT(distag_tensor_get_count(tensor), INT64_C(1) << 40);
  CHECK_INT(distag_tensor_get_size(tensor), INT64_C(1) << 42);
  CHECK_OK(distag_tensor_set_requires_grad(tensor, 1, &err));
  CHECK_INT(distag_tensor_get_requires_grad(tensor), 1);
  CHECK(is_deferred(tensor));
  /* No machine has this much memory: the read fails, and the tensor stays as it is. */
  distag_tensor *y = NULL;
  float few[1];
  CHECK_FAILS(distag_exp(tensor, &y, &err), DISTAG_E_OUT_OF_MEMORY, "memory");
  CHECK(distag_tensor_get_data(tensor) == NULL);
  CHECK_FAILS(distag_tensor_copy_data(tensor, few, sizeof few, &err), DISTAG_E_INVALID_ARGUMENT, "capacity");
  CHECK(is_deferred(tensor));
  CHECK_INT(distag_tensor_get_requires_grad(tensor), 1);
  distag_tensor_release(tensor);
  CHECK_INT(reported("alive"), -1); /* nothing was ever made */
  tensor = NULL;
  CHECK_FAILS(distag_tensor_create_deferred(DISTAG_FLOAT32, too_large, 2, NULL, &tensor, &err),
              DISTAG_E_INVALID_ARGUMENT, "shape");
  CHECK(tensor == NULL);
}

/* Both tensors have the same bytes. Releases them. */
static void same_and_release(distag_tensor *a, distag_tensor *b) {
  distag_error err = DISTAG_ERROR_INIT;
  char left[kCount * 8], right[kCount * 8];
  const size_t size = distag_tensor_get_size(b);
  CHECK_INT(distag_tensor_get_size(a), size);
  CHECK_OK(distag_tensor_copy_data(a, left, sizeof left, &err));
  CHECK_OK(distag_tensor_copy_data(b, right, sizeof right, &err));
  CHECK(memcmp(left, right, size) == 0);
  distag_tensor_release(a);
  distag_tensor_release(b);
}

static void values(void) {
  distag_error err = DISTAG_ERROR_INIT;
  for (distag_dtype dtype = DISTAG_FLOAT32; dtype <= DISTAG_BOOL; ++dtype) {
    distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
    distag_tensor *plain = NULL;
    CHECK_OK(distag_zeros(dtype, kShape, 2, &plain, &err));
    same_and_release(make(NULL, dtype), plain);
    options.shift = 1;
    CHECK_OK(distag_full(1, dtype, kShape, 2, &plain, &err));
    same_and_release(make(&options, dtype), plain);
  }
  for (distag_dtype dtype = DISTAG_FLOAT32; dtype <= DISTAG_FLOAT64; ++dtype) {
    distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
    distag_tensor *plain = NULL, *scaled = NULL, *shifted = NULL;
    options.init = DISTAG_INIT_RAND;
    options.seed = UINT64_MAX;
    CHECK_OK(distag_rand(UINT64_MAX, dtype, kShape, 2, &plain, &err));
    same_and_release(make(&options, dtype), plain);
    options.init = DISTAG_INIT_RANDN;
    CHECK_OK(distag_randn(UINT64_MAX, dtype, kShape, 2, &plain, &err));
    options.scale = 0.02;
    options.shift = -1.7;
    CHECK_OK(distag_mul_scalar(plain, 0.02, &scaled, &err));
    CHECK_OK(distag_add_scalar(scaled, -1.7, &shifted, &err));
    same_and_release(make(&options, dtype), shifted);
    distag_tensor_release(scaled);
    options.scale = options.shift = 0;
    same_and_release(make(&options, dtype), plain);
  }
}

/* The creation is refused, and ends the user data, which is no longer the host's. */
static void refused(distag_deferred_options *options, distag_dtype dtype, distag_status status, const char *word,
                    int line) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *tensor = NULL;
  source mine = kSource;
  options->user_data = &mine;
  options->destroy = count_destroy;
  check_fails(distag_tensor_create_deferred(dtype, kShape, 2, options, &tensor, &err), status, &err, word, __FILE__,
              line, "create_deferred");
  check_int(mine.destroyed, 1, __FILE__, line, "destroyed");
  check_true(tensor == NULL, __FILE__, line, "no tensor");
}

#define REFUSED(member, value, dtype, status, word)               \
  do {                                                            \
    distag_deferred_options given = DISTAG_DEFERRED_OPTIONS_INIT; \
    given.member = (value);                                       \
    refused(&given, dtype, status, word, __LINE__);               \
  } while (0)

static void refusals(void) {
  distag_error err = DISTAG_ERROR_INIT;
  REFUSED(init, 6, DISTAG_FLOAT32, DISTAG_E_UNSUPPORTED, "init");
  REFUSED(init, DISTAG_INIT_SOURCE, DISTAG_FLOAT32, DISTAG_E_INVALID_ARGUMENT, "source");
  REFUSED(source, write_box, DISTAG_FLOAT32, DISTAG_E_INVALID_ARGUMENT, "DISTAG_INIT_SOURCE");
  REFUSED(seed, 1, DISTAG_FLOAT32, DISTAG_E_INVALID_ARGUMENT, "seed");
  REFUSED(scale, 1, DISTAG_FLOAT32, DISTAG_E_INVALID_ARGUMENT, "scale");
  REFUSED(shift, 0.5, DISTAG_INT64, DISTAG_E_INVALID_ARGUMENT, "int64");
  REFUSED(init, DISTAG_INIT_RAND, DISTAG_INT64, DISTAG_E_UNSUPPORTED, "dtype");
  REFUSED(init, DISTAG_INIT_RANDN, DISTAG_BOOL, DISTAG_E_UNSUPPORTED, "dtype");
  REFUSED(init, DISTAG_INIT_FULL, DISTAG_FLOAT16, DISTAG_E_UNSUPPORTED, "dtype");
  distag_deferred_options shifted = DISTAG_DEFERRED_OPTIONS_INIT;
  shifted.init = DISTAG_INIT_SOURCE;
  shifted.source = write_box;
  shifted.shift = 1;
  refused(&shifted, DISTAG_FLOAT32, DISTAG_E_INVALID_ARGUMENT, "shift", __LINE__);
  struct {
    distag_deferred_options head;
    uint64_t tail;
  } later;
  memset(&later, 0, sizeof later);
  later.head.struct_size = sizeof later;
  later.tail = 1;
  refused(&later.head, DISTAG_FLOAT32, DISTAG_E_UNSUPPORTED, "not know", __LINE__);
  /* If the struct has an unknown size, nothing in it is used. */
  source mine = kSource;
  distag_deferred_options odd = from(&mine);
  distag_tensor *tensor = NULL;
  odd.struct_size = 7;
  CHECK_FAILS(distag_tensor_create_deferred(DISTAG_FLOAT32, kShape, 2, &odd, &tensor, &err), DISTAG_E_INVALID_ARGUMENT,
              "struct_size");
  CHECK_INT(mine.destroyed, 0);
  distag_deferred_options good = from(&mine);
  CHECK_FAILS(distag_tensor_create_deferred(DISTAG_FLOAT32, kShape, 2, &good, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "out_tensor");
  CHECK_INT(mine.destroyed, 1);
  CHECK_FAILS(distag_tensor_create_deferred(DISTAG_FLOAT32, NULL, 2, &good, &tensor, &err), DISTAG_E_INVALID_ARGUMENT,
              "shape");
  CHECK_INT(mine.destroyed, 2);
}

/* User data that no initialiser needs ends at once. */
static void unneeded_data(void) {
  source mine = kSource;
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  options.user_data = &mine;
  options.destroy = count_destroy;
  distag_tensor_release(make(&options, DISTAG_FLOAT32));
  CHECK_INT(mine.destroyed, 1);
}

static void released_unmade(void) {
  source mine = kSource;
  distag_tensor *tensor = make_from(&mine);
  CHECK_INT(mine.destroyed, 0);
  distag_tensor_release(tensor);
  CHECK_INT(mine.calls, 0);
  CHECK_INT(mine.destroyed, 1);
}

static void made_once(void) {
  distag_error err = DISTAG_ERROR_INIT;
  const int64_t whole = reported("bytes_made_whole");
  source mine = kSource;
  distag_tensor *tensor = make_from(&mine), *y = NULL, *view = NULL;
  CHECK(is_deferred(tensor));
  CHECK_OK(distag_neg(tensor, &y, &err));
  CHECK(!is_deferred(tensor));
  CHECK_INT(mine.calls, 1);
  CHECK_INT(mine.destroyed, 1);
  CHECK(has_source_values(tensor));
  CHECK(distag_tensor_get_data(tensor) != NULL);
  CHECK_OK(distag_transpose(tensor, 0, 1, &view, &err));
  CHECK_INT(mine.calls, 1);
  CHECK_INT(reported("bytes_made_whole") - whole, kCount * sizeof(float));
  distag_tensor_release(tensor);
  distag_tensor_release(view);
  distag_tensor_release(y);
  CHECK_INT(mine.destroyed, 1);
}

static void failing(void) {
  distag_error err = DISTAG_ERROR_INIT;
  source mine = kSource;
  distag_tensor *tensor = make_from(&mine), *y = NULL;
  float all[kCount];
  mine.fails = 1234;
  CHECK_FAILS(distag_tensor_copy_data(tensor, all, sizeof all, &err), 1234, "the file is gone");
  CHECK_FAILS(distag_exp(tensor, &y, &err), 1234, "the file is gone");
  CHECK(distag_tensor_get_data(tensor) == NULL);
  CHECK_FAILS(distag_tensor_write(tensor, all, sizeof all, &err), 1234, "the file is gone");
  CHECK(is_deferred(tensor));
  CHECK_INT(mine.calls, 4);
  CHECK_INT(mine.destroyed, 0);
  mine.fails = DISTAG_OK;
  CHECK(has_source_values(tensor));
  CHECK_INT(mine.destroyed, 1);
  distag_tensor_release(tensor);
  CHECK_INT(mine.destroyed, 1);
  /* The source is never read again. */
  source other = kSource;
  other.fails = 1234;
  tensor = make_from(&other);
  CHECK_FAILS(distag_exp(tensor, &y, &err), 1234, "the file is gone");
  other.fails = kUnexplained;
  CHECK_FAILS(distag_exp(tensor, &y, &err), kUnexplained, "the box [6, 5] at [0, 0]");
  distag_tensor_release(tensor);
  CHECK_INT(other.destroyed, 1);
}

static distag_status write_two(void *user_data, const int64_t *offset, const int64_t *extent, size_t ndim, void *buffer,
                               size_t size, distag_error *err) {
  (void)user_data, (void)offset, (void)extent, (void)ndim, (void)err;
  memset(buffer, 2, size);
  return DISTAG_OK;
}

static void odd_bools(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  distag_tensor *y = NULL;
  options.init = DISTAG_INIT_SOURCE;
  options.source = write_two;
  distag_tensor *tensor = make(&options, DISTAG_BOOL);
  CHECK_FAILS(distag_clone(tensor, &y, &err), DISTAG_E_INVALID_ARGUMENT, "bool");
  CHECK(is_deferred(tensor));
  distag_tensor_release(tensor);
}

/* A source may use the library, but not wait for itself. */
static void reentering(void) {
  source inner = kSource, outer = kSource;
  distag_tensor *other = make_from(&inner), *tensor = make_from(&outer);
  outer.reads = other;
  CHECK(has_source_values(tensor));
  CHECK(inner.calls == 1 && inner.destroyed == 1 && outer.destroyed == 1);
  distag_tensor_release(tensor);
  distag_tensor_release(other);
  distag_error err = DISTAG_ERROR_INIT;
  source own = kSource;
  float all[kCount];
  tensor = make_from(&own);
  own.reads = tensor;
  CHECK_FAILS(distag_tensor_copy_data(tensor, all, sizeof all, &err), DISTAG_E_INVALID_STATE, "source");
  CHECK_INT(own.answer, DISTAG_E_INVALID_STATE);
  own.reads = NULL;
  CHECK(has_source_values(tensor));
  distag_tensor_release(tensor);
  CHECK_INT(own.destroyed, 1);
}

static void *read_whole(void *tensor) { return has_source_values(tensor) ? tensor : NULL; }

static void by_several_threads(void) {
  for (int round = 0; round < 100; ++round) {
    source mine = kSource;
    distag_tensor *tensor = make_from(&mine);
    pthread_t threads[3];
    for (int i = 0; i < 3; ++i) CHECK_INT(pthread_create(&threads[i], NULL, read_whole, tensor), 0);
    for (int i = 0; i < 3; ++i) {
      void *read = NULL;
      CHECK(pthread_join(threads[i], &read) == 0 && read == tensor);
    }
    distag_tensor_release(tensor);
    CHECK_INT(mine.calls, 1);
    CHECK_INT(mine.destroyed, 1);
  }
}

/* A leaf, and what an optimizer does with it. */
static void trained(void) {
  distag_error err = DISTAG_ERROR_INIT;
  source mine = kSource;
  distag_tensor *leaf = make_from(&mine), *square = NULL, *sum = NULL;
  distag_context *context = NULL;
  distag_optimizer *sgd = NULL;
  distag_value *value = distag_tensor_as_value(leaf);
  CHECK_OK(distag_tensor_set_requires_grad(leaf, 1, &err));
  CHECK_OK(distag_optimizer_create(NULL, "sgd", &value, 1, &sgd, &err));
  CHECK_OK(distag_optimizer_set(sgd, "lr", 0.25, &err));
  CHECK(is_deferred(leaf));
  CHECK_OK(distag_context_create(NULL, &context, &err));
  CHECK_OK(distag_mul(leaf, leaf, &square, &err));
  CHECK_OK(distag_sum(square, NULL, 0, 0, &sum, &err));
  CHECK_OK(distag_backward(context, &sum, 1, NULL, &err));
  CHECK_OK(distag_optimizer_step(sgd, context, NULL, &err));
  float all[kCount];
  CHECK_OK(distag_tensor_copy_data(leaf, all, sizeof all, &err));
  for (int i = 0; i < kCount; ++i) CHECK_NEAR(all[i], 0.5 * (10 * (i / kColumns) + i % kColumns));
  CHECK_INT(mine.calls, 1);
  distag_context_release(context);
  distag_optimizer_release(sgd);
  distag_tensor_release(sum);
  distag_tensor_release(square);
  distag_tensor_release(leaf);
  CHECK_INT(mine.destroyed, 1);
}

/* Written, assigned, exported, as a snapshot, in a list. */
static void other_uses(void) {
  distag_error err = DISTAG_ERROR_INIT;
  source mine = kSource;
  float all[kCount] = {0};
  distag_tensor *tensor = make_from(&mine), *snapshot = NULL, *target = NULL;
  CHECK_OK(distag_tensor_create_snapshot(tensor, &snapshot, &err));
  CHECK_OK(distag_tensor_write(tensor, all, sizeof all, &err));
  CHECK(has_source_values(snapshot));
  distag_tensor_release(snapshot);
  distag_tensor_release(tensor);
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, kShape, 2, &target, &err));
  tensor = make_from(&mine);
  CHECK_OK(distag_tensor_assign(target, tensor, &err));
  CHECK(has_source_values(target));
  distag_tensor_release(tensor);
  tensor = make_from(&mine);
  CHECK_OK(distag_tensor_assign(tensor, target, &err));
  CHECK(has_source_values(tensor));
  distag_tensor_release(tensor);
  tensor = make_from(&mine);
  CHECK_OK(distag_tensor_add_scaled(tensor, target, -1, &err));
  double item = -1;
  distag_tensor *sum = NULL;
  CHECK_OK(distag_sum(tensor, NULL, 0, 0, &sum, &err));
  CHECK_OK(distag_tensor_get_item(sum, &item, &err));
  CHECK(item == 0);
  distag_tensor_release(sum);
  distag_tensor_release(tensor);
  distag_tensor_release(target);
  CHECK_INT(mine.calls, 4);
  CHECK_INT(mine.destroyed, 4);
}

static distag_status give_deferred(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *tensor = NULL;
  const distag_deferred_options options = from(user_data);
  distag_tensor_create_deferred(DISTAG_FLOAT32, kShape, 2, &options, &tensor, err);
  const distag_status status = distag_invocation_return(invocation, distag_tensor_as_value(tensor), err);
  distag_tensor_release(tensor);
  return status;
}

static source given = {PTHREAD_MUTEX_INITIALIZER, 0, 0, DISTAG_OK, NULL, DISTAG_OK};

/* An argument, an answer and the values of references, which are made when they are given. */
static void calls(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  if (rank != 0) return;
  distag_worker *worker = group->workers[0];
  const char *other = distag_worker_get_name(group->workers[1]);
  source mine = kSource;
  distag_tensor *tensor = make_from(&mine), *got = NULL;
  distag_value *argument = distag_tensor_as_value(tensor), *answer = NULL;
  CHECK_OK(distag_call(worker, NULL, other, "neg", &argument, 1, NULL, &answer, &err));
  CHECK_OK(distag_value_get_tensor(answer, &got, &err));
  distag_tensor *back = NULL;
  CHECK_OK(distag_neg(got, &back, &err));
  CHECK(has_source_values(back));
  distag_tensor_release(back);
  distag_value_release(answer);
  distag_tensor_release(tensor);
  CHECK(mine.calls == 1 && mine.destroyed == 1);
  for (int i = 0; i < 2; ++i) { /* by a call to another one, and to itself */
    CHECK_OK(distag_call(worker, NULL, i == 0 ? other : distag_worker_get_name(worker), "give", NULL, 0, NULL, &answer,
                         &err));
    CHECK_OK(distag_value_get_tensor(answer, &got, &err));
    CHECK(has_source_values(got));
    distag_value_release(answer);
    CHECK(given.calls == i + 1 && given.destroyed == i + 1);
  }
  distag_rref *rref = NULL;
  CHECK_OK(distag_remote(worker, NULL, other, "give", NULL, 0, NULL, &rref, &err));
  CHECK_OK(distag_rref_fetch(rref, NULL, NULL, &answer, &err));
  CHECK_OK(distag_value_get_tensor(answer, &got, &err));
  CHECK(has_source_values(got));
  distag_value_release(answer);
  distag_rref_release(rref);
  CHECK(given.calls == 3 && given.destroyed == 3);
  tensor = make_from(&mine);
  CHECK_OK(distag_rref_create(worker, distag_tensor_as_value(tensor), &rref, &err));
  CHECK(mine.calls == 2 && mine.destroyed == 2);
  distag_rref_release(rref);
  distag_tensor_release(tensor);
}

static distag_mesh *make_mesh(members *group, int32_t rank) {
  static const char *const names[] = {"x"};
  const int64_t shape[] = {-1};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, shape, names, 1, NULL, &mesh, &err));
  return mesh;
}

static void sharded(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  source mine = kSource;
  distag_tensor *x = make_from(&mine), *part = NULL, *whole = NULL;
  CHECK_OK(distag_tensor_mark_sharding(x, mesh, "('x', None)", -1, &err));
  CHECK(!is_deferred(x));
  CHECK(mine.calls == 1 && mine.destroyed == 1);
  CHECK_OK(distag_tensor_to_local(x, NULL, &part, &err));
  CHECK_INT(distag_tensor_get_shape(part)[0], kRows / 2);
  float first = -1;
  memcpy(&first, distag_tensor_get_data(part), sizeof first);
  CHECK(first == (float)(10 * kRows / 2 * rank));
  CHECK_OK(distag_tensor_gather(x, -1, 0, &whole, &err));
  CHECK(has_source_values(whole));
  distag_tensor_release(part);
  distag_tensor_release(whole);
  distag_tensor_release(x);
  CHECK_INT(mine.destroyed, 1);
  distag_mesh_release(mesh);
}

/* The source of a single member fails: all are told, and the mesh has ended; the tensor is as it was. */
static void sharded_in_vain(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  source mine = kSource;
  mine.fails = rank == 1 ? 1234 : DISTAG_OK;
  distag_tensor *x = make_from(&mine), *whole = NULL;
  err.code = DISTAG_OK;
  distag_tensor_mark_sharding(x, mesh, "('x', None)", -1, &err);
  /* The other member may have finished its mark by then. */
  if (rank == 0 && err.code == DISTAG_OK) distag_tensor_gather(x, -1, 0, &whole, &err);
  CHECK_INT(err.code, 1234);
  CHECK(strstr(err.message, "the file is gone") != NULL);
  if (rank == 1) {
    CHECK(is_deferred(x) && distag_tensor_get_spec(x) == NULL && mine.destroyed == 0);
    mine.fails = DISTAG_OK;
    CHECK(has_source_values(x));
  }
  distag_tensor_release(x);
  CHECK_INT(mine.destroyed, 1);
  distag_mesh_release(mesh);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  members group;
  properties();
  values();
  refusals();
  unneeded_data();
  released_unmade();
  made_once();
  failing();
  odd_bools();
  reentering();
  by_several_threads();
  trained();
  other_uses();
  if (CHECK(members_start(&group, 2, "deferred") == 0)) {
    for (int32_t i = 0; i < 2; ++i) {
      CHECK_OK(distag_worker_register(group.workers[i], "give", give_deferred, &given, NULL, NULL, &err));
    }
    members_run(&group, 2, calls);
    const int64_t here = reported("bytes_made_here");
    members_run(&group, 2, sharded);
    CHECK_INT(reported("bytes_made_here") - here, kCount * sizeof(float));
    members_run(&group, 2, sharded_in_vain);
    CHECK(members_end(&group) == 0);
  }
  CHECK_INT(reported("alive"), 0);
  return check_end();
}
