/* A process that has used up its memory mappings (vm.max_map_count) refuses what is large with OUT_OF_MEMORY and the
 * cure, soon and again and again, and no peer is given up: what needs no mapping works meanwhile, and all of it works
 * once there is room. At the caller and at the callee; over lanes, sockets and tcp; calls, gradients, collectives. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/mappings.h"
#include "capi/support/processes.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kMayLack = 0 }; /* a sanitizer maps memory of its own, and ends the process without it */
#else
enum { kMayLack = 1 };
#endif

enum { kLane, kSocket, kTcp, kWays };
enum { kLeases = 3, kCount = 4 << 20 };

static const char *const kNames[kWays] = {"lanes", "sockets", "tcp"};
static const int64_t kLease = 2 * DISTAG_SECOND;
static distag_error err = DISTAG_ERROR_INIT;
static distag_tensor *kept; /* what the callee answers with */

/* ---- functions of both members ---- */

static distag_status use_up(void *user_data, distag_invocation *invocation, distag_error *error) {
  (void)user_data, (void)invocation, (void)error;
  return CHECK(use_up_mappings()) ? DISTAG_OK : DISTAG_E_INTERNAL;
}

static distag_status make_room(void *user_data, distag_invocation *invocation, distag_error *error) {
  (void)user_data, (void)invocation, (void)error;
  give_mappings_back();
  return DISTAG_OK;
}

static distag_status take(void *user_data, distag_invocation *invocation, distag_error *error) {
  (void)user_data, (void)invocation, (void)error;
  return DISTAG_OK;
}

static distag_status give(void *user_data, distag_invocation *invocation, distag_error *error) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_tensor_as_value(kept), error);
}

/* ---- what is refused, and what is served ---- */

enum { kCall, kSmall, kPass, kSum, kKinds };

static const char *const kKindNames[kKinds] = {"calls", "small calls", "passes", "sums"};

/* Counts of all plans and both ranks. */
typedef struct tally {
  atomic_int refused[kKinds];
  atomic_int served[kKinds]; /* although mappings are lacking: memory of earlier messages may serve once more */
} tally;

static tally *counts;

/* ---- the caller ---- */

static distag_status call(distag_worker *worker, const char *function, distag_tensor *x) {
  distag_value *result = NULL, *arg = x == NULL ? NULL : distag_tensor_as_value(x);
  err.code = DISTAG_OK;
  distag_call(worker, NULL, "w1", function, &arg, x != NULL, NULL, &result, &err);
  distag_value_release(result);
  return err.code;
}

typedef struct shortage {
  int way;
  int32_t lacking; /* the rank that lacks mappings */
} shortage;

/* A small call takes memory too, of which there may be none left without a mapping. */
static void expect_small(distag_status status, const char *what) {
  atomic_fetch_add(status == DISTAG_OK ? &counts->served[kSmall] : &counts->refused[kSmall], 1);
  if (status == DISTAG_OK || status == DISTAG_E_OUT_OF_MEMORY) return;
  CHECK_INT(status, DISTAG_OK);
  fprintf(stderr, "%s: %s\n", what, err.message);
}

static void make_room_there(distag_worker *worker, int32_t lacking) {
  if (lacking == 0) {
    give_mappings_back();
  } else {
    while (call(worker, "make_room", NULL) == DISTAG_E_OUT_OF_MEMORY) continue;
    if (!CHECK_INT(err.code, DISTAG_OK)) fprintf(stderr, "make_room: %s\n", err.message);
  }
}

static void use_up_there(distag_worker *worker, int32_t lacking) {
  if (lacking == 0) {
    CHECK(use_up_mappings());
  } else {
    expect_small(call(worker, "use_up", NULL), "use_up");
  }
}

static void expect_lack(distag_status status, const shortage *plan, int kind) {
  if (status == DISTAG_OK && kind != kCall) {
    atomic_fetch_add(&counts->served[kind], 1);
    return;
  }
  atomic_fetch_add(&counts->refused[kind], 1);
  if (CHECK_INT(status, DISTAG_E_OUT_OF_MEMORY) && CHECK(strstr(err.message, "max_map_count") != NULL)) return;
  fprintf(stderr, "%s over %s, rank %d lacks: %s\n", kKindNames[kind], kNames[plan->way], (int)plan->lacking,
          err.message);
}

static void expect_served(distag_status status, const shortage *plan, int kind) {
  if (CHECK_INT(status, DISTAG_OK)) return;
  fprintf(stderr, "%s with room over %s: %s\n", kKindNames[kind], kNames[plan->way], err.message);
}

/* ---- passes and collectives ---- */

enum { kPasses = 3 };

/* The forward of all passes goes before the lack; the last backward comes when there is room. */
static void backward(distag_worker *worker, const shortage *plan, distag_tensor *x) {
  distag_context *contexts[kPasses] = {NULL};
  distag_value *answers[kPasses] = {NULL}, *arg = distag_tensor_as_value(x);
  distag_tensor *losses[kPasses] = {NULL}, *y = NULL;
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  for (int i = 0; i < kPasses; ++i) {
    CHECK_OK(distag_context_create(worker, &contexts[i], &err));
    CHECK_OK(distag_call(worker, contexts[i], "w1", "neg", &arg, 1, NULL, &answers[i], &err));
    CHECK_OK(distag_value_get_tensor(answers[i], &y, &err));
    CHECK_OK(distag_sum(y, NULL, 0, 0, &losses[i], &err));
  }
  for (int i = 0; i < kPasses; ++i) {
    const int is_short = i + 1 < kPasses;
    is_short ? use_up_there(worker, plan->lacking) : make_room_there(worker, plan->lacking);
    err.code = DISTAG_OK;
    const distag_status status = distag_backward(contexts[i], &losses[i], 1, NULL, &err);
    is_short ? expect_lack(status, plan, kPass) : expect_served(status, plan, kPass);
    distag_tensor_release(losses[i]);
    distag_value_release(answers[i]);
    distag_context_release(contexts[i]);
  }
  CHECK_OK(distag_tensor_set_requires_grad(x, 0, &err));
}

/* Both members call. A mesh is made by both, so that none calls before the lack is there. */
static void reduce(distag_worker *worker, const shortage *plan, int32_t rank) {
  static const int64_t shape[] = {2};
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  distag_mesh *mesh = NULL;
  distag_tensor *sum = NULL;
  options.timeout_ns = 60 * DISTAG_SECOND;
  for (int is_short = 1; is_short >= 0; --is_short) {
    CHECK_OK(distag_mesh_create(worker, NULL, 0, shape, NULL, 1, &options, &mesh, &err));
    if (is_short && rank == plan->lacking) CHECK(use_up_mappings());
    err.code = DISTAG_OK;
    const distag_status status = distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, kept, NULL, &sum, &err);
    if (is_short && rank == plan->lacking) give_mappings_back();
    is_short ? expect_lack(status, plan, kSum) : expect_served(status, plan, kSum);
    distag_tensor_release(sum);
    distag_mesh_release(mesh);
    sum = NULL;
  }
}

static void lack(distag_worker *worker, const shortage *plan) {
  const int64_t count = kCount;
  distag_tensor *large = NULL, *small = NULL;
  CHECK_OK(distag_full(3, DISTAG_FLOAT32, &count, 1, &large, &err));
  CHECK_OK(distag_full(3, DISTAG_FLOAT32, NULL, 0, &small, &err));
  const char *const function = plan->lacking == 0 ? "give" : "take";
  distag_tensor *const x = plan->lacking == 0 ? small : large;
  CHECK_INT(call(worker, "neg", small), DISTAG_OK);
  int refused = 0;
  for (const int64_t until = now_ns() + kLeases * kLease; now_ns() < until && check_failures == 0; ++refused) {
    use_up_there(worker, plan->lacking);
    const int64_t begin = now_ns();
    expect_lack(call(worker, function, x), plan, kCall);
    CHECK(now_ns() - begin < kLeases * kLease); /* without a lack: 0.1 s on an idle machine */
    expect_small(call(worker, "neg", small), "neg");
  }
  printf("%s, rank %d lacks mappings: %d calls refused\n", kNames[plan->way], (int)plan->lacking, refused);
  make_room_there(worker, plan->lacking);
  while (call(worker, function, x) != DISTAG_OK && check_failures == 0) {
    if (!CHECK_INT(err.code, DISTAG_E_OUT_OF_MEMORY)) fprintf(stderr, "%s: %s\n", kNames[plan->way], err.message);
  }
  if (check_failures == 0) backward(worker, plan, large);
  distag_tensor_release(large);
  distag_tensor_release(small);
}

static int live(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  const shortage *const plan = data;
  const int64_t elements = kCount;
  distag_worker *worker = NULL;
  distag_worker_options options = group_options(rank, count, rendezvous);
  check_failures = 0;
  alarm(300);
  options.lease_ns = kLease;
  options.no_lane = plan->way != kLane;
  if (plan->way == kTcp) options.bind = "tcp://127.0.0.1:0";
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "use_up", use_up, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "make_room", make_room, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "take", take, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "give", give, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_full(3, DISTAG_FLOAT32, &elements, 1, &kept, &err));
  if (rank == 0) lack(worker, plan);
  reduce(worker, plan, rank);
  CHECK_OK(distag_worker_shutdown(worker, 60 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  distag_tensor_release(kept);
  fflush(stdout);
  return check_failures != 0;
}

static int try_plan(shortage *plan) {
  processes group;
  CHECK_INT(processes_start(&group, 2, live, plan), 0);
  CHECK_INT(processes_end(&group, -1), 0);
  return check_failures != 0;
}

int main(void) {
  if (!kMayLack || mapping_limit() == 0) {
    printf("skipped: there is no bound of mappings that this test can use up\n");
    return 0;
  }
  counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!CHECK(counts != MAP_FAILED)) return check_end();
  for (int i = 0; i < 2 * kWays; ++i) {
    shortage plan = {i / 2, i % 2};
    const pid_t child = fork();
    if (child == 0) _exit(try_plan(&plan));
    CHECK(child > 0);
  }
  for (int status = 0; wait(&status) > 0;) CHECK_INT(status, 0);
  for (int kind = 0; kind < kKinds; ++kind) {
    const int refused = atomic_load(&counts->refused[kind]);
    printf("%s: %d refused, %d served\n", kKindNames[kind], refused, atomic_load(&counts->served[kind]));
    CHECK(refused > 0 || kind == kSmall);
  }
  CHECK(atomic_load(&counts->served[kSmall]) > 0);
  return check_end();
}
