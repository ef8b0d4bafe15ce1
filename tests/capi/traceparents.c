/* The traceparent of a call: it reaches the function, and the calls that the function makes carry it on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define A "00-" TRACE "-00f067aa0ba902b7-01"
#define B "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *workers[3];

static uint64_t dropped(distag_worker *worker) {
  distag_stats stats = DISTAG_STATS_INIT;
  CHECK_OK(distag_worker_get_stats(worker, &stats, &err));
  return stats.traceparents_dropped;
}

/* ---- functions ---- */

/* Answers with its traceparent; null for a call without one. */
static distag_status last(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_value *text = NULL;
  (void)user_data;
  const char *found = distag_invocation_get_traceparent(invocation);
  if (found == NULL) return DISTAG_OK;
  distag_value_create_text(found, &text, told);
  distag_invocation_return(invocation, text, told);
  distag_value_release(text);
  return told->code;
}

/* Answers as "last" on w2 does. */
static distag_status ask_last(distag_invocation *invocation, distag_context *context,
                              const distag_call_options *options, distag_error *told) {
  distag_value *answer = NULL;
  distag_call(distag_invocation_get_worker(invocation), context, "w2", "last", NULL, 0, options, &answer, told);
  distag_invocation_return(invocation, answer, told);
  distag_value_release(answer);
  return told->code;
}

static distag_status plainly(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  return ask_last(invocation, NULL, NULL, told);
}

static distag_status in_context(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  return ask_last(invocation, distag_invocation_get_context(invocation), NULL, told);
}

/* With other options than the caller's: `user_data` is the traceparent. */
static distag_status with_another(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.traceparent = user_data;
  return ask_last(invocation, NULL, &options, told);
}

static distag_status by_future(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_future *future = NULL;
  distag_value *answer = NULL;
  (void)user_data;
  distag_call_async(distag_invocation_get_worker(invocation), NULL, "w2", "last", NULL, 0, NULL, &future, told);
  distag_future_wait(future, DISTAG_FOREVER, told);
  distag_future_get_value(future, &answer, told);
  distag_invocation_return(invocation, answer, told);
  distag_future_release(future);
  return told->code;
}

/* Through a reference at a third worker: the call that makes the value has the traceparent, and the fetch carries
 * it. */
static distag_status by_reference(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_rref *rref = NULL;
  distag_value *answer = NULL;
  (void)user_data;
  distag_remote(distag_invocation_get_worker(invocation), NULL, "w2", "last", NULL, 0, NULL, &rref, told);
  distag_rref_fetch(rref, NULL, NULL, &answer, told);
  distag_invocation_return(invocation, answer, told);
  distag_value_release(answer);
  distag_rref_release(rref);
  return told->code;
}

/* On a thread of the host's, which answers no call. */
typedef struct elsewhere {
  distag_invocation *invocation, *within;
  distag_context *context;
  distag_error *told;
} elsewhere;

static void *run_elsewhere(void *data) {
  const elsewhere *given = data;
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.within = given->within;
  ask_last(given->invocation, given->context, &options, given->told);
  return NULL;
}

static distag_status on_thread(void *user_data, distag_invocation *invocation, distag_error *told) {
  const char *by = user_data;
  pthread_t thread;
  elsewhere given = {invocation, NULL, NULL, told};
  if (strcmp(by, "within") == 0) given.within = invocation;
  if (strcmp(by, "context") == 0) given.context = distag_invocation_get_context(invocation);
  CHECK_INT(pthread_create(&thread, NULL, run_elsewhere, &given), 0);
  CHECK_INT(pthread_join(thread, NULL), 0);
  return told->code;
}

/* Deferred: a callback on the first call makes the second one, whose callback answers. */
static void second_done(void *user_data, distag_future *future) {
  distag_error told = DISTAG_ERROR_INIT;
  distag_value *answer = NULL;
  distag_future_get_value(future, &answer, &told);
  distag_reply_finish(user_data, answer, &told, NULL);
  distag_reply_release(user_data);
}

static void first_done(void *user_data, distag_future *future) {
  distag_error told = DISTAG_ERROR_INIT;
  distag_future *second = NULL;
  (void)future;
  distag_call_async(workers[1], NULL, "w2", "last", NULL, 0, NULL, &second, &told);
  distag_future_on_done(second, second_done, user_data, NULL, &told);
  distag_future_release(second);
  CHECK_INT(told.code, DISTAG_OK);
}

static distag_status deferred(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_reply *reply = NULL;
  distag_future *first = NULL;
  (void)user_data;
  distag_invocation_defer(invocation, &reply, told);
  distag_call_async(distag_invocation_get_worker(invocation), NULL, "w2", "last", NULL, 0, NULL, &first, told);
  distag_future_on_done(first, first_done, reply, NULL, told);
  distag_future_release(first);
  return told->code;
}

static distag_status then_ask(void *user_data, distag_future *future, distag_value **out_value, distag_error *told) {
  (void)user_data;
  (void)future;
  return distag_call(workers[1], NULL, "w2", "last", NULL, 0, NULL, out_value, told);
}

static distag_status continued(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_reply *reply = NULL;
  distag_future *first = NULL, *second = NULL;
  (void)user_data;
  distag_invocation_defer(invocation, &reply, told);
  distag_call_async(distag_invocation_get_worker(invocation), NULL, "w2", "last", NULL, 0, NULL, &first, told);
  distag_future_then(first, then_ask, NULL, NULL, &second, told);
  distag_future_on_done(second, second_done, reply, NULL, told);
  distag_future_release(second);
  distag_future_release(first);
  return told->code;
}

/* Fails each second time. */
static distag_status fails_first(void *user_data, distag_invocation *invocation, distag_error *told) {
  int *calls = user_data;
  if (++*calls % 2 == 1) return distag_error_set(told, DISTAG_E_USER, "again");
  return last(NULL, invocation, told);
}

/* ---- checks ---- */

/* Checks the answer of `function` on `to` to a call with this traceparent; NULL stands for none, both ways. */
static void expect(distag_worker *from, distag_context *context, const char *to, const char *function,
                   const char *given, const char *expected) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_value *answer = NULL;
  const char *text = NULL;
  options.traceparent = given;
  if (!CHECK_OK(distag_call(from, context, to, function, NULL, 0, &options, &answer, &err))) return;
  if (expected == NULL) {
    if (!CHECK_INT(distag_value_get_kind(answer), DISTAG_VALUE_NULL)) fprintf(stderr, "%s on %s\n", function, to);
  } else if (CHECK_OK(distag_value_get_text(answer, &text, &err))) {
    if (!CHECK_TEXT(text, expected)) fprintf(stderr, "%s on %s\n", function, to);
  }
  distag_value_release(answer);
}

static void along_a_chain(void) {
  static const char *const ways[] = {"plainly",   "by_future",  "by_reference", "deferred",
                                     "continued", "in_context", "within",       "context"};
  distag_context *context = NULL;
  CHECK_OK(distag_context_create(workers[0], &context, &err));
  for (size_t i = 0; i < sizeof ways / sizeof *ways; ++i) {
    expect(workers[0], context, "w1", ways[i], A, A);
    expect(workers[0], context, "w1", ways[i], NULL, NULL); /* nothing of the call before */
  }
  distag_context_release(context);
  expect(workers[0], NULL, "w1", "alone", A, NULL);
  expect(workers[0], NULL, "w1", "other", A, B);
  expect(workers[0], NULL, "w1", "stop", A, NULL);
  CHECK_INT(dropped(workers[1]), 0);
  expect(workers[0], NULL, "w1", "bad", A, A); /* as though none were given */
  CHECK_INT(dropped(workers[1]), 1);
  CHECK_INT(dropped(workers[0]) + dropped(workers[2]), 0);
}

static void to_itself(void) {
  expect(workers[0], NULL, "w0", "last", A, A);
  expect(workers[0], NULL, "w0", "last", NULL, NULL);
  expect(workers[2], NULL, "w2", "plainly", B, B);
}

/* A host that calls again calls with the same options. */
static void again(void) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.traceparent = A;
  CHECK_FAILS(distag_call(workers[0], NULL, "w1", "fails_first", NULL, 0, &options, NULL, &err), DISTAG_E_USER,
              "again");
  expect(workers[0], NULL, "w1", "fails_first", A, A);
}

static void malformed_ones(void) {
  static const char *const malformed[] = {
      "0",
      "00-",
      "00-" TRACE "-00f067aa0ba902b7-0",   /* too short */
      "00-" TRACE "-00f067aa0ba902b7-011", /* too long */
      "00-" TRACE "-00f067aa0ba902b7-01-", /* more behind version 00 */
      "00-" TRACE "-00f067aa0ba902b7-01-later",
      "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", /* upper case */
      "00-" TRACE "-00F067AA0BA902B7-01",
      "00-" TRACE "-00f067aa0ba902b7-0A",
      "0A-" TRACE "-00f067aa0ba902b7-01",
      "ff-" TRACE "-00f067aa0ba902b7-01", /* the invalid version */
      "ff-" TRACE "-00f067aa0ba902b7-01-later",
      "00-00000000000000000000000000000000-00f067aa0ba902b7-01", /* ids of zeros */
      "00-" TRACE "-0000000000000000-01",
      "00-" TRACE "_00f067aa0ba902b7-01", /* another divider */
      "00_" TRACE "-00f067aa0ba902b7-01",
      "00-" TRACE "-00f067aa0ba902b7_01",
      "00-" TRACE "-00f067aa0ba902g7-01",
      "00-" TRACE "-00f067aa0ba902b7-0g",
      "g0-" TRACE "-00f067aa0ba902b7-01",
      " " A,
      A " ",
      "\xff" A,
      "01-" TRACE "-00f067aa0ba902b7-01later", /* a later version divides too */
      "01-" TRACE "-00f067aa0ba902b7-0",
      "01-00000000000000000000000000000000-00f067aa0ba902b7-01",
  };
  const uint64_t before = dropped(workers[0]);
  const size_t count = sizeof malformed / sizeof *malformed;
  for (size_t i = 0; i < count; ++i) {
    expect(workers[0], NULL, "w1", "last", malformed[i], NULL);
    if (!CHECK_INT(dropped(workers[0]), before + i + 1)) fprintf(stderr, "\"%s\"\n", malformed[i]);
  }
  char *huge = malloc(8 << 20);
  memset(huge, 'a', (8 << 20) - 1);
  huge[(8 << 20) - 1] = '\0';
  expect(workers[0], NULL, "w1", "last", huge, NULL);
  free(huge);
  CHECK_INT(dropped(workers[0]), before + count + 1);
  expect(workers[0], NULL, "w1", "last", "", NULL); /* none, and nothing to count */
  CHECK_INT(dropped(workers[0]), before + count + 1);
  CHECK_INT(dropped(workers[2]), 0);
}

/* In version 00 each flag goes on; in a later one what this version knows, however much follows. */
static void well_formed_ones(void) {
  static const char *const pairs[][2] = {
      {"00-" TRACE "-00f067aa0ba902b7-00", "00-" TRACE "-00f067aa0ba902b7-00"},
      {"00-" TRACE "-00f067aa0ba902b7-ff", "00-" TRACE "-00f067aa0ba902b7-ff"},
      {"01-" TRACE "-00f067aa0ba902b7-01", A},
      {"01-" TRACE "-00f067aa0ba902b7-01-what-comes-later", A},
      {"cc-" TRACE "-00f067aa0ba902b7-01-", A},
      {"fe-" TRACE "-00f067aa0ba902b7-ff-\xff", A},
      {"01-" TRACE "-00f067aa0ba902b7-02", "00-" TRACE "-00f067aa0ba902b7-00"},
  };
  const uint64_t before = dropped(workers[0]);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; ++i) {
    expect(workers[0], NULL, "w1", "last", pairs[i][0], pairs[i][1]);
  }
  CHECK_INT(dropped(workers[0]), before);
}

/* A caller of 0.2 has no such member, and no memory where it would be. */
static void older_callers(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!CHECK(pages != MAP_FAILED)) return;
  CHECK_INT(mprotect(pages + page, page, PROT_NONE), 0);
  const size_t size = offsetof(distag_call_options, traceparent);
  distag_call_options *options = (distag_call_options *)(void *)(pages + page - size);
  options->struct_size = (uint32_t)size;
  options->label = "of 0.2";
  distag_value *answer = NULL;
  CHECK_OK(distag_call(workers[0], NULL, "w1", "last", NULL, 0, options, &answer, &err));
  CHECK_INT(distag_value_get_kind(answer), DISTAG_VALUE_NULL);
  distag_value_release(answer);
  options->struct_size = (uint32_t)size - 8;
  CHECK_FAILS(distag_call(workers[0], NULL, "w1", "last", NULL, 0, options, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "struct_size");

  const size_t known = offsetof(distag_stats, request_bytes_open);
  distag_stats *stats = (distag_stats *)(void *)(pages + page - known);
  memset(stats, 0, known);
  stats->struct_size = (uint32_t)known;
  CHECK_OK(distag_worker_get_stats(workers[0], stats, &err));
  CHECK(stats->calls_made > 0);
  CHECK_INT(stats->struct_size, known);
  stats->struct_size = (uint32_t)known - 8;
  CHECK_FAILS(distag_worker_get_stats(workers[0], stats, &err), DISTAG_E_INVALID_ARGUMENT, "struct_size");
  munmap(pages, 2 * page);
}

/* A call that is taken as an event has it until it is finished; a call within it carries it on. */
static void taken(void) {
  distag_worker *host = NULL;
  distag_worker_options how = group_options(0, 1, "inproc://taken");
  how.executor = DISTAG_EXECUTOR_HOST;
  CHECK_OK(distag_worker_create(&how, &host, &err));
  CHECK_OK(distag_worker_offer(host, "taken", 7, NULL, &err));
  CHECK_INT(group_start(&host, 1), 0);
  distag_future *outer = NULL, *inner = NULL, *unrelated = NULL;
  distag_event first = DISTAG_EVENT_INIT, second = DISTAG_EVENT_INIT, third = DISTAG_EVENT_INIT;
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.traceparent = A;
  CHECK_OK(distag_call_async(host, NULL, "w0", "taken", NULL, 0, &options, &outer, &err));
  CHECK_OK(distag_worker_take_event(host, 120 * DISTAG_SECOND, &first, &err));
  CHECK_TEXT(distag_invocation_get_traceparent(first.invocation), A);
  options.traceparent = NULL;
  options.within = first.invocation;
  CHECK_OK(distag_call_async(host, NULL, "w0", "taken", NULL, 0, &options, &inner, &err));
  CHECK_OK(distag_worker_take_event(host, 120 * DISTAG_SECOND, &second, &err));
  CHECK_TEXT(distag_invocation_get_traceparent(second.invocation), A);
  CHECK_OK(distag_call_async(host, NULL, "w0", "taken", NULL, 0, NULL, &unrelated, &err));
  CHECK_OK(distag_worker_take_event(host, 120 * DISTAG_SECOND, &third, &err));
  CHECK(distag_invocation_get_traceparent(third.invocation) == NULL);
  CHECK_OK(distag_invocation_finish(third.invocation, NULL, NULL, &err));
  CHECK_OK(distag_invocation_finish(second.invocation, NULL, NULL, &err));
  CHECK_OK(distag_invocation_finish(first.invocation, NULL, NULL, &err));
  distag_future *const all[] = {outer, inner, unrelated};
  CHECK_OK(distag_wait_all(all, 3, 120 * DISTAG_SECOND, &err));
  for (int i = 0; i < 3; ++i) distag_future_release(all[i]);
  CHECK_INT(group_shutdown(&host, 1), 0);
  distag_worker_release(host);
}

int main(void) {
  static int calls_of_fails_first;
  static char other[] = B, stop[] = "", bad[] = "00-bad", within[] = "within", context[] = "context", alone[] = "alone";
  const struct {
    const char *name;
    distag_function function;
    void *user_data;
  } offered[] = {{"last", last, NULL},
                 {"plainly", plainly, NULL},
                 {"in_context", in_context, NULL},
                 {"other", with_another, other},
                 {"stop", with_another, stop},
                 {"bad", with_another, bad},
                 {"by_future", by_future, NULL},
                 {"by_reference", by_reference, NULL},
                 {"within", on_thread, within},
                 {"context", on_thread, context},
                 {"alone", on_thread, alone},
                 {"deferred", deferred, NULL},
                 {"continued", continued, NULL},
                 {"fails_first", fails_first, &calls_of_fails_first}};
  for (int32_t rank = 0; rank < 3; ++rank) {
    const distag_worker_options options = group_options(rank, 3, "inproc://traceparents");
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
    for (size_t i = 0; i < sizeof offered / sizeof *offered; ++i) {
      CHECK_OK(distag_worker_register(workers[rank], offered[i].name, offered[i].function, offered[i].user_data, NULL,
                                      NULL, &err));
    }
  }
  CHECK_INT(group_start(workers, 3), 0);
  along_a_chain();
  to_itself();
  again();
  malformed_ones();
  well_formed_ones();
  older_callers();
  taken();
  CHECK_INT(group_shutdown(workers, 3), 0);
  for (int i = 0; i < 3; ++i) distag_worker_release(workers[i]);
  return check_end();
}
