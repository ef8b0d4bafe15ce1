/* Loaders: the rows of each batch on any mesh, and after any number of resumes; the other modes; what they count. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/feed.h"
#include "capi/support/group.h"
#include "capi/support/members.h"

enum { kMostRows = 64, kMostBatches = 64 };

static int64_t member_count;
static const char *const kX[] = {"x"};

static distag_mesh *make_mesh(members *group, int32_t rank) {
  const int32_t ranks[] = {0, 1, 2, 3, 4, 5, 6, 7};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(
      distag_mesh_create(group->workers[rank], ranks, (size_t)member_count, &member_count, kX, 1, NULL, &mesh, &err));
  return mesh;
}

static int start(members *group, int32_t count, const char *rendezvous, size_t threads) {
  distag_error err = DISTAG_ERROR_INIT;
  group->count = count;
  for (int32_t i = 0; i < count; ++i) {
    distag_worker_options options = group_options(i, count, rendezvous);
    options.thread_count = (uint32_t)threads;
    if (!CHECK_OK(distag_worker_create(&options, &group->workers[i], &err))) return 1;
  }
  return group_start(group->workers, (size_t)count);
}

/* The rows of a batch, from its "x" and "y". */
static size_t rows_of(distag_value *batch, int64_t *rows) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = NULL, *y = NULL, *whole_x = NULL, *whole_y = NULL;
  int64_t numbers[2 * kMostRows];
  double others[kMostRows];
  CHECK_OK(distag_value_get_tensor(distag_value_get_entry(batch, "x"), &x, &err));
  CHECK_OK(distag_value_get_tensor(distag_value_get_entry(batch, "y"), &y, &err));
  CHECK(distag_tensor_get_mesh(x) != NULL);
  CHECK_TEXT(distag_tensor_get_spec(x), "('x', None)");
  CHECK_OK(distag_tensor_gather(x, -1, DISTAG_FOREVER, &whole_x, &err));
  CHECK_OK(distag_tensor_gather(y, -1, DISTAG_FOREVER, &whole_y, &err));
  const size_t count = distag_tensor_get_count(whole_y);
  CHECK_INT(distag_tensor_get_count(whole_x), 2 * count);
  CHECK_OK(distag_tensor_copy_data(whole_x, numbers, count * 16, &err));
  CHECK_OK(distag_tensor_copy_data(whole_y, others, count * 8, &err));
  for (size_t i = 0; i < count; ++i) {
    rows[i] = (int64_t)others[i];
    CHECK_INT(numbers[2 * i], 2 * rows[i]);
    CHECK_INT(numbers[2 * i + 1], 2 * rows[i] + 1);
  }
  distag_tensor_release(whole_x);
  distag_tensor_release(whole_y);
  return count;
}

/* ---- rows ---- */

typedef struct trial {
  distag_loader_options options;
  int64_t resumes;       /* after every number of batches; 0: never */
  const int64_t *golden; /* nullable: all rows, in order */
} trial;

static trial wanted;
static int64_t reference[kMostBatches][kMostRows + 1]; /* of one member: the count, then the rows */
static size_t reference_count;
static feed feeds[kMostMembers];

static distag_loader *resumed(distag_mesh *mesh, distag_loader *before, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_loader_options options = wanted.options;
  distag_loader *loader = NULL;
  CHECK_OK(distag_loader_save(before, &options.state, &err));
  distag_loader_release(before);
  feed_await_destroyed(&feeds[rank]);
  feeds[rank].destroyed = 0;
  CHECK_OK(distag_loader_create(mesh, feed_source, &feeds[rank], feed_destroy, &options, &loader, &err));
  distag_value_release(options.state);
  return loader;
}

static void read_rows(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_loader *loader = NULL;
  distag_value *batch = NULL;
  distag_loader_options options = wanted.options;
  options.prefetch += (uint32_t)rank; /* each member is free in that */
  CHECK_OK(distag_loader_create(mesh, feed_source, &feeds[rank], feed_destroy, &options, &loader, &err));
  size_t batches = 0, all = 0;
  while (CHECK_OK(distag_loader_next(loader, 120 * DISTAG_SECOND, &batch, &err)) && batch != NULL) {
    int64_t rows[kMostRows];
    const size_t count = rows_of(batch, rows);
    distag_value_release(batch);
    if (!CHECK(batches < kMostBatches)) break;
    for (size_t i = 0; wanted.golden != NULL && i < count; ++i) CHECK_INT(rows[i], wanted.golden[all + i]);
    all += count;
    if (member_count == 1) {
      reference[batches][0] = (int64_t)count;
      memcpy(reference[batches] + 1, rows, count * sizeof *rows);
    } else if (CHECK(batches < reference_count) && CHECK_INT(count, reference[batches][0])) {
      CHECK(memcmp(reference[batches] + 1, rows, count * sizeof *rows) == 0);
    }
    ++batches;
    if (wanted.resumes != 0 && batches % (size_t)wanted.resumes == 0) loader = resumed(mesh, loader, rank);
  }
  if (member_count == 1) reference_count = batches;
  CHECK_INT(batches, reference_count);
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  CHECK_OK(distag_loader_get_info(loader, &info, &err));
  CHECK_INT(info.count, batches);
  CHECK_INT(info.next, batches);
  CHECK_INT(info.dropped, 0);
  CHECK_OK(distag_loader_next(loader, 0, &batch, &err));
  CHECK(batch == NULL);
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  distag_mesh_release(mesh);
}

/* Each row of an epoch is asked for once, of one member. */
static void check_asked(int64_t members_used, int64_t *asked) {
  const distag_loader_options *o = &wanted.options;
  if (o->drop_last || wanted.resumes != 0) return;
  for (int64_t row = 0; row < o->row_count; ++row) {
    int64_t times = 0;
    for (int64_t m = 0; m < members_used; ++m) times += asked[m * kMostRows + row];
    CHECK_INT(times, o->epochs);
  }
}

static void try_rows(members *group) {
  static const int64_t kCounts[] = {1, 2, 3, 4, 8};
  for (size_t i = 0; i < sizeof kCounts / sizeof *kCounts; ++i) {
    int64_t asked[kMostMembers * kMostRows] = {0};
    member_count = kCounts[i];
    for (int32_t m = 0; m < kMostMembers; ++m) {
      feed_init(&feeds[m]);
      feeds[m].asked = asked + (size_t)m * kMostRows;
    }
    members_run(group, (int32_t)member_count, read_rows);
    check_asked(member_count, asked);
    for (int32_t m = 0; m < kMostMembers; ++m) {
      CHECK_INT(feeds[m].calls_after, 0);
      CHECK(feeds[m].most <= (wanted.options.concurrency == 0 ? 1 : (int)wanted.options.concurrency));
      feed_end(&feeds[m]);
    }
  }
}

static void rows(members *group) {
  static const int64_t kGolden[] = {6, 9, 2, 0, 5, 1, 3, 4, 7, 8, 3, 0, 4, 6, 2, 7, 9, 8, 1, 5};
  static const int64_t kPlain[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
  /* rows, batch, epochs, shuffle, drop_last, prefetch, concurrency, resumes */
  static const int64_t kTrials[][8] = {{10, 4, 2, 1, 0, 0, 0, 0}, {10, 4, 2, 1, 0, 3, 3, 1}, {5, 3, 2, 0, 0, 1, 1, 0},
                                       {0, 4, 2, 1, 0, 0, 0, 0},  {1, 8, 3, 1, 0, 5, 2, 2},  {31, 7, 2, 1, 0, 4, 3, 3},
                                       {31, 7, 3, 1, 1, 2, 2, 1}, {3, 4, 2, 1, 1, 0, 0, 0},  {64, 64, 2, 1, 0, 1, 3, 1},
                                       {17, 1, 2, 1, 0, 8, 3, 5}};
  for (size_t i = 0; i < sizeof kTrials / sizeof *kTrials; ++i) {
    const int64_t *t = kTrials[i];
    const distag_loader_options none = DISTAG_LOADER_OPTIONS_INIT;
    wanted = (trial){none, t[7], i < 2 ? kGolden : i == 2 ? kPlain : NULL};
    wanted.options.mode = DISTAG_BATCH_ROWS;
    wanted.options.row_count = t[0];
    wanted.options.batch_rows = t[1];
    wanted.options.epochs = t[2];
    wanted.options.shuffle = (uint32_t)t[3];
    wanted.options.drop_last = (uint32_t)t[4];
    wanted.options.prefetch = (uint32_t)t[5];
    wanted.options.concurrency = (uint32_t)t[6];
    wanted.options.seed = 1 + i / 2;
    try_rows(group);
  }
}

/* ---- 10^10 rows, and a jump to the last of them ---- */

static int64_t huge_rows[8];

static distag_status note_rows(void *user_data, uint64_t number, const int64_t *rows, size_t row_count,
                               distag_value **out_batch, distag_error *err) {
  (void)user_data;
  if (number == 0) memcpy(huge_rows, rows, row_count * sizeof *rows);
  const int64_t count = (int64_t)row_count;
  distag_tensor *numbers = NULL;
  if (distag_tensor_create(rows, row_count * 8, DISTAG_INT64, &count, 1, &numbers, err) != DISTAG_OK) return err->code;
  *out_batch = distag_tensor_as_value(numbers);
  distag_value_retain(*out_batch);
  distag_tensor_release(numbers);
  return DISTAG_OK;
}

static void huge(members *group, int32_t rank) {
  static const int64_t kGolden[] = {6588379916, 3060646317, 6799651224, 3308767859, 7324590991, 5859749062};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
  distag_loader *loader = NULL;
  distag_value *batch = NULL, *state = NULL;
  options.mode = DISTAG_BATCH_ROWS;
  options.row_count = 10000000000;
  options.batch_rows = 6;
  options.epochs = DISTAG_FOREVER;
  options.shuffle = 1;
  options.seed = 42;
  CHECK_OK(distag_loader_create(mesh, note_rows, NULL, NULL, &options, &loader, &err));
  CHECK_OK(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err));
  for (size_t i = 0; i < 6; ++i) CHECK_INT(huge_rows[i], kGolden[i]);
  CHECK_OK(distag_loader_save(loader, &state, &err));
  CHECK_INT(distag_value_get_count(state), 8);
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  CHECK_OK(distag_loader_get_info(loader, &info, &err));
  CHECK_INT(info.count, -1);
  distag_value_release(batch);
  distag_value_release(state);
  distag_loader_release(loader);
  distag_mesh_release(mesh);
}

/* ---- the other modes ---- */

static uint32_t mode;

static void read_mode(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
  distag_loader *loader = NULL;
  distag_value *batch = NULL;
  feed data;
  feed_init(&data);
  data.batches = 5;
  options.mode = mode;
  options.concurrency = 2;
  options.prefetch = 3;
  if (mode == DISTAG_BATCH_LOCAL) {
    const int64_t block = (kFedRows + member_count - 1) / member_count; /* as the boxes of 4 rows */
    data.first = block * rank < kFedRows ? block * rank : kFedRows;
    data.count = data.first + block < kFedRows ? block : kFedRows - data.first;
  }
  CHECK_OK(distag_loader_create(mesh, feed_source, &data, feed_destroy, &options, &loader, &err));
  for (int64_t k = 0; k < 5; ++k) {
    int64_t rows[kMostRows];
    if (!CHECK_OK(distag_loader_next(loader, 120 * DISTAG_SECOND, &batch, &err)) || !CHECK(batch != NULL)) break;
    CHECK_INT(rows_of(batch, rows), kFedRows);
    for (int64_t i = 0; i < kFedRows; ++i) CHECK_INT(rows[i], k * kFedRows + i);
    distag_value_release(batch);
  }
  CHECK_OK(distag_loader_next(loader, 120 * DISTAG_SECOND, &batch, &err));
  CHECK(batch == NULL);
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  CHECK_OK(distag_loader_get_info(loader, &info, &err));
  CHECK_INT(info.count, 5);
  CHECK_INT(info.dropped, 0);
  if (mode == DISTAG_BATCH_ROOT && rank != 0) CHECK_INT(data.calls, 0);
  distag_loader_release(loader);
  feed_await_destroyed(&data);
  feed_end(&data);
  distag_mesh_release(mesh);
}

/* A batch of more parts than a line has room for at once. */
enum { kParts = 300 };

static distag_status many_parts(void *user_data, uint64_t number, const int64_t *rows, size_t row_count,
                                distag_value **out_batch, distag_error *err) {
  const int64_t shape[] = {2};
  distag_status status = DISTAG_OK;
  (void)user_data, (void)rows, (void)row_count;
  if (number == 3) return DISTAG_OK;
  distag_tensor *parts[kParts] = {NULL};
  distag_value *items[kParts];
  for (int i = 0; status == DISTAG_OK && i < kParts; ++i) {
    status = distag_full(1000.0 * (double)number + i, DISTAG_FLOAT64, shape, 1, &parts[i], err);
    items[i] = distag_tensor_as_value(parts[i]);
  }
  if (status == DISTAG_OK) status = distag_value_create_list(items, kParts, out_batch, err);
  for (int i = 0; i < kParts; ++i) distag_tensor_release(parts[i]);
  return status;
}

static void read_many_parts(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
  distag_loader *loader = NULL;
  distag_value *batch = NULL;
  options.mode = DISTAG_BATCH_ROOT;
  options.prefetch = 3;
  CHECK_OK(distag_loader_create(mesh, many_parts, NULL, NULL, &options, &loader, &err));
  for (int k = 0; k < 3; ++k) {
    if (!CHECK_OK(distag_loader_next(loader, 120 * DISTAG_SECOND, &batch, &err)) || !CHECK(batch != NULL)) break;
    CHECK_INT(distag_value_get_count(batch), kParts);
    for (int i = 0; i < kParts; i += 299) {
      distag_tensor *part = NULL, *whole = NULL;
      double numbers[2] = {0};
      CHECK_OK(distag_value_get_tensor(distag_value_get_item(batch, (size_t)i), &part, &err));
      CHECK_OK(distag_tensor_gather(part, -1, 0, &whole, &err));
      CHECK_OK(distag_tensor_copy_data(whole, numbers, sizeof numbers, &err));
      CHECK_INT(numbers[1], 1000 * k + i);
      distag_tensor_release(whole);
    }
    distag_value_release(batch);
  }
  CHECK_OK(distag_loader_next(loader, 120 * DISTAG_SECOND, &batch, &err));
  CHECK(batch == NULL);
  distag_loader_release(loader);
  distag_mesh_release(mesh);
}

static void modes(members *group) {
  for (mode = DISTAG_BATCH_GLOBAL; mode <= DISTAG_BATCH_ROOT; ++mode) {
    for (member_count = 1; member_count <= 5; member_count += 2) members_run(group, (int32_t)member_count, read_mode);
  }
}

/* ---- many ---- */

static int count_in(const char *folder) {
  char command[64];
  snprintf(command, sizeof command, "ls /proc/%d/%s | wc -l", (int)getpid(), folder);
  FILE *pipe = popen(command, "r");
  int count = -1;
  if (pipe == NULL || fscanf(pipe, "%d", &count) != 1) count = -1;
  if (pipe != NULL) pclose(pipe);
  return count;
}

static void open_and_close(distag_mesh *mesh, int times) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int i = 0; i < times; ++i) {
    distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
    distag_loader *loader = NULL;
    distag_value *batch = NULL;
    options.mode = DISTAG_BATCH_ROWS;
    options.row_count = 12;
    options.batch_rows = 3;
    CHECK_OK(distag_loader_create(mesh, note_rows, NULL, NULL, &options, &loader, &err));
    CHECK_OK(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err));
    distag_value_release(batch);
    distag_loader_release(loader);
  }
}

static void many(members *group, int32_t rank) {
  static int threads, files;
  distag_mesh *mesh = make_mesh(group, rank);
  open_and_close(mesh, 50);
  if (rank == 0) {
    threads = count_in("task");
    files = count_in("fd");
  }
  open_and_close(mesh, 1000);
  if (rank == 0) {
    /* Other threads may have some open for a moment, and may be preempted then; a leak makes 1,000. */
    CHECK(count_in("task") <= threads + 100);
    CHECK(count_in("fd") <= files + 100);
    CHECK(distag_get_handle_count() < 20);
  }
  distag_mesh_release(mesh);
}

int main(void) {
  members group;
  if (start(&group, 8, "inproc://loaders", 4) != 0) return 1;
  rows(&group);
  modes(&group);
  member_count = 1;
  members_run(&group, 1, huge);
  member_count = 2;
  members_run(&group, 2, read_many_parts);
  members_run(&group, 2, many);
  CHECK_INT(members_end(&group), 0);
  return check_end();
}
