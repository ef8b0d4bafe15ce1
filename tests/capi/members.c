/* Open worlds, members that come, go and come back, and what the host learns of them. */
#include <poll.h>
#include <string.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;

/* The news that one worker was told: "w1+ w1- ", written under the host executor, that is by the thread that polls. */
typedef struct {
  char teller[32];
  char text[256];
  int ended;
} news;

static void note_member(void *user_data, distag_worker *worker, const distag_member *member) {
  news *told = user_data;
  size_t used = strlen(told->text);
  CHECK(told->ended == 0);
  CHECK_INT(member->struct_size, sizeof *member);
  CHECK(member->incarnation != 0);
  snprintf(told->teller, sizeof told->teller, "%s", distag_worker_get_name(worker));
  snprintf(told->text + used, sizeof told->text - used, "%s%c ", member->name, "?+-x"[member->state]);
}

static void end_news(void *user_data) { ((news *)user_data)->ended = 1; }

static distag_status answer_rank(void *user_data, distag_invocation *invocation, distag_error *error) {
  distag_value *rank = NULL;
  (void)user_data;
  distag_value_create_int64(distag_worker_get_rank(distag_invocation_get_worker(invocation)), &rank, error);
  distag_invocation_return(invocation, rank, error);
  distag_value_release(rank);
  return error->code;
}

static distag_worker *make(int32_t rank, int32_t size, const char *name, const char *rendezvous) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  options.rank = rank;
  options.world_size = size;
  options.name = name;
  options.rendezvous = rendezvous;
  options.thread_count = 2;
  distag_worker_create(&options, &worker, &err);
  distag_worker_register(worker, "rank", answer_rank, NULL, NULL, NULL, &err);
  return worker;
}

static distag_worker *start(int32_t rank, const char *name, const char *rendezvous) {
  distag_worker *worker = make(rank, -1, name, rendezvous);
  distag_worker_start(worker, 120 * DISTAG_SECOND, &err);
  return worker;
}

static void end(distag_worker *worker) {
  distag_value *report = NULL;
  int32_t clean = 0;
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, &report, &err));
  CHECK_OK(distag_value_get_bool(distag_value_get_entry(report, "clean"), &clean, &err));
  CHECK_INT(clean, 1);
  distag_value_release(report);
  distag_worker_release(worker);
}

static int64_t rank_of(distag_worker *from, const char *to) {
  distag_value *answer = NULL;
  int64_t rank = -1;
  distag_call(from, NULL, to, "rank", NULL, 0, NULL, &answer, &err);
  distag_value_get_int64(answer, &rank, &err);
  distag_value_release(answer);
  return rank;
}

static void open_world(const char *rendezvous) {
  distag_member member = DISTAG_MEMBER_INIT;
  int32_t ranks[4] = {-1, -1, -1, -1};
  size_t count = 0;
  distag_worker *first = make(0, -1, "first", rendezvous);
  CHECK_INT(distag_worker_get_world_size(first), 0);
  CHECK_FAILS(distag_worker_get_member(first, 0, &member, &err), DISTAG_E_NOT_FOUND, "rank 0");
  CHECK_OK(distag_worker_start(first, 120 * DISTAG_SECOND, &err));
  CHECK_INT(distag_worker_get_world_size(first), 1);

  distag_worker *server = start(-1, "ps:1", rendezvous);
  distag_worker *other = start(7, "ps:7", rendezvous);
  distag_worker *nameless = make(-1, -1, NULL, rendezvous);
  CHECK(distag_worker_get_name(nameless) == NULL);
  CHECK_OK(distag_worker_start(nameless, 120 * DISTAG_SECOND, &err));
  CHECK_INT(err.code, DISTAG_OK);
  CHECK_TEXT(distag_worker_get_name(nameless), "worker2");
  CHECK_INT(distag_worker_get_rank(nameless), 2);
  CHECK_INT(distag_worker_get_rank(server), 1);
  CHECK_INT(distag_worker_get_world_size(first), 4);
  CHECK_INT(rank_of(first, "worker2"), 2);
  CHECK_INT(rank_of(nameless, "ps:7"), 7);

  CHECK_OK(distag_worker_get_member(first, 7, &member, &err));
  CHECK_TEXT(member.name, "ps:7");
  CHECK_INT(member.state, DISTAG_MEMBER_ALIVE);
  CHECK_OK(distag_worker_get_member_by_name(other, "first", &member, &err));
  CHECK_INT(member.rank, 0);
  CHECK_FAILS(distag_worker_get_member_by_name(other, "nobody", &member, &err), DISTAG_E_NOT_FOUND, "nobody");
  CHECK_INT(member.rank, -1);
  CHECK_OK(distag_worker_copy_ranks(first, "ps:", ranks, 4, &count, &err));
  CHECK_INT(count, 2);
  CHECK_INT(ranks[0], 1);
  CHECK_INT(ranks[1], 7);
  CHECK_OK(distag_worker_copy_ranks(first, "", ranks, 1, &count, &err));
  CHECK_INT(count, 4);
  CHECK_INT(ranks[0], 0);
  CHECK_INT(ranks[1], 7); /* beyond the capacity */

  /* A living name is taken; a name that has left comes back to its rank. */
  distag_worker *rival = make(-1, -1, "ps:7", rendezvous);
  CHECK_FAILS(distag_worker_start(rival, 120 * DISTAG_SECOND, &err), DISTAG_E_INVALID_STATE, "ps:7");
  end(other);
  CHECK_INT(rank_of(first, "first"), 0); /* by now its loop has reported the end that it acknowledged */
  CHECK_OK(distag_worker_get_member(first, 7, &member, &err));
  CHECK_INT(member.state, DISTAG_MEMBER_LEFT);
  CHECK_FAILS(distag_call(first, NULL, "ps:7", "rank", NULL, 0, NULL, NULL, &err), DISTAG_E_DISCONNECTED, "has left");
  CHECK_OK(distag_worker_start(rival, 120 * DISTAG_SECOND, &err));
  CHECK_INT(rank_of(first, "ps:7"), 7);
  CHECK_INT(distag_worker_get_world_size(server), 4);

  end(rival);
  end(nameless);
  end(server);
  end(first);
}

static void static_world_again(void) {
  distag_worker *workers[2];
  distag_value *report = NULL;
  for (int32_t rank = 0; rank < 2; ++rank) workers[rank] = make(rank, 2, rank == 0 ? "w0" : "w1", "inproc://again");
  CHECK_INT(group_start(workers, 2), 0);
  CHECK_INT(rank_of(workers[0], "w1"), 1);
  CHECK_OK(distag_worker_shutdown(workers[1], 0, &report, &err));
  distag_value_release(report);
  distag_worker_release(workers[1]);
  workers[1] = make(1, 2, "w1", "inproc://again");
  CHECK_OK(distag_worker_start(workers[1], 120 * DISTAG_SECOND, &err));
  CHECK_INT(rank_of(workers[0], "w1"), 1);
  CHECK_INT(rank_of(workers[1], "w0"), 0);
  CHECK_INT(distag_worker_get_world_size(workers[0]), 2);
  CHECK_INT(group_shutdown(workers, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
}

static void ranks_before_the_start(distag_worker *worker) {
  size_t count = 7;
  distag_member nobody = DISTAG_MEMBER_INIT;
  CHECK_OK(distag_worker_copy_ranks(worker, "", NULL, 0, &count, &err));
  CHECK_INT(count, 0);
  CHECK_FAILS(distag_worker_get_member(worker, 0, &nobody, &err), DISTAG_E_NOT_FOUND, "0");
}

static void callbacks(void) {
  news told = {"", "", 0};
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *watcher = NULL;
  options.rank = 0;
  options.world_size = -1;
  options.name = "watcher";
  options.rendezvous = "inproc://watched";
  options.executor = DISTAG_EXECUTOR_HOST;
  options.user_data = &told;
  options.destroy = end_news;
  options.on_member = note_member;
  CHECK_OK(distag_worker_create(&options, &watcher, &err));
  ranks_before_the_start(watcher);
  CHECK_OK(distag_worker_start(watcher, 120 * DISTAG_SECOND, &err));
  distag_worker *guest = start(-1, "guest", "inproc://watched");
  CHECK_INT(err.code, DISTAG_OK);
  end(guest);
  while (strstr(told.text, "guest-") == NULL) {
    struct pollfd ready = {(int)distag_worker_get_fd(watcher), POLLIN, 0};
    CHECK(poll(&ready, 1, 120000) == 1);
    CHECK_OK(distag_worker_poll(watcher, 0, DISTAG_FOREVER, NULL, &err));
    if (check_failures != 0) break;
  }
  CHECK_TEXT(told.text, "watcher+ guest+ guest- ");
  CHECK_TEXT(told.teller, "watcher");
  end(watcher);
  CHECK_INT(told.ended, 1);
  CHECK_TEXT(told.text, "watcher+ guest+ guest- ");
}

static distag_status answer_much(void *user_data, distag_invocation *invocation, distag_error *error) {
  const int64_t shape[] = {1 << 19};
  distag_tensor *much = NULL;
  (void)user_data;
  distag_zeros(DISTAG_FLOAT64, shape, 1, &much, error);
  distag_invocation_return(invocation, distag_tensor_as_value(much), error);
  distag_tensor_release(much);
  return error->code;
}

/* Limits may differ: no peer sends a worker more than it takes, and nothing is lost over it. */
static void limits(void) {
  const int64_t shape[] = {1 << 19};
  distag_worker *workers[2] = {NULL, NULL};
  distag_tensor *much = NULL;
  distag_value *arg = NULL, *answer = NULL;
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = group_options(rank, 2, "inproc://limits");
    if (rank == 1) options.max_message_bytes = 1 << 20;
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
    CHECK_OK(distag_worker_register(workers[rank], "rank", answer_rank, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[rank], "much", answer_much, NULL, NULL, NULL, &err));
  }
  CHECK_INT(group_start(workers, 2), 0);
  CHECK_OK(distag_zeros(DISTAG_FLOAT64, shape, 1, &much, &err));
  arg = distag_tensor_as_value(much);
  CHECK_FAILS(distag_call(workers[0], NULL, "w1", "rank", &arg, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "which is 1048576 (that of this worker is 1073741824)");
  CHECK_FAILS(distag_call(workers[1], NULL, "w0", "much", NULL, 0, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "which is 1048576");
  CHECK_OK(distag_call(workers[0], NULL, "w0", "much", NULL, 0, NULL, &answer, &err));
  CHECK_INT(rank_of(workers[0], "w1"), 1);
  CHECK_INT(rank_of(workers[1], "w0"), 0);
  distag_value_release(answer);
  distag_tensor_release(much);
  CHECK_INT(group_shutdown(workers, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
}

int main(void) {
  limits();
  open_world("inproc://open");
  static_world_again();
  callbacks();
  return check_end();
}
