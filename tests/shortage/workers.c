/* Two workers: calls, a pass through both, references, an optimizer that steps on both; from their creation to the
 * release. Whatever answers OUT_OF_MEMORY is done again, so that what a failure left behind is used. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shortage/etcd_server.h"
#include "shortage/group.h"

/* The place of a worker that is gone without a word is free again after its lease of 5 s. */
static const int64_t kEtcdStartTime = 30 * DISTAG_SECOND;

static distag_tensor *make_leaf(run_result *result) {
  distag_error err = DISTAG_ERROR_INIT;
  const double data[2] = {2, 3};
  const int64_t shape[1] = {2};
  distag_tensor *x = NULL;
  if (RUN(result, distag_tensor_create(data, sizeof data, DISTAG_FLOAT64, shape, 1, &x, &err)) &&
      !RUN(result, distag_tensor_set_requires_grad(x, 1, &err))) {
    distag_tensor_release(x);
    x = NULL;
  }
  return x;
}

static void check_gradient(run_result *result, distag_gradients *gradients, distag_tensor *x) {
  distag_error err = DISTAG_ERROR_INIT;
  const double expected[2] = {4 * 5, 6 * 6}; /* of sum(x^2 w): 2 x w */
  double data[2] = {0, 0};
  distag_tensor *const gradient = distag_gradients_find(gradients, x);
  if (gradient == NULL) {
    run_note_wrong(result, "distag_gradients_find gave NULL", 0, 1);
  } else if (RUN(result, distag_tensor_copy_data(gradient, data, sizeof data, &err))) {
    for (int i = 0; i < 2; ++i) {
      if (data[i] != expected[i]) run_note_wrong(result, "gradient", data[i], expected[i]);
    }
  }
}

/* loss = sum(square(x) * w), where the other worker squares and owns w; then a step of w over there. */
static int train_once(run_result *result, distag_worker *worker) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = make_leaf(result), *squared = NULL, *w = NULL, *product = NULL, *loss = NULL;
  distag_rref *rref = NULL;
  distag_value *answer = NULL, *fetched = NULL;
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  distag_optimizer *optimizer = NULL;
  int is_ok = x != NULL && RUN(result, distag_context_create(worker, &context, &err)) &&
              RUN(result, distag_remote(worker, NULL, "w1", "parameter", NULL, 0, NULL, &rref, &err)) &&
              RUN(result, distag_rref_fetch(rref, context, NULL, &fetched, &err)) &&
              RUN(result, distag_value_get_tensor(fetched, &w, &err));
  if (is_ok) {
    distag_value *const args[1] = {distag_tensor_as_value(x)};
    is_ok = RUN(result, distag_call(worker, context, "w1", "square", args, 1, NULL, &answer, &err)) &&
            RUN(result, distag_value_get_tensor(answer, &squared, &err)) &&
            RUN(result, distag_mul(squared, w, &product, &err)) &&
            RUN(result, distag_sum(product, NULL, 0, 0, &loss, &err)) &&
            RUN(result, distag_backward(context, &loss, 1, NULL, &err)) &&
            RUN(result, distag_get_gradients(context, &gradients, &err));
  }
  if (is_ok) check_gradient(result, gradients, x);
  if (is_ok) {
    distag_value *const parameters[1] = {distag_rref_as_value(rref)};
    is_ok = RUN(result, distag_optimizer_create(worker, "sgd", parameters, 1, &optimizer, &err)) &&
            RUN(result, distag_optimizer_step(optimizer, context, NULL, &err));
  }
  distag_optimizer_release(optimizer);
  distag_gradients_release(gradients);
  distag_tensor_release(loss);
  distag_tensor_release(product);
  distag_value_release(answer);
  distag_value_release(fetched);
  distag_rref_release(rref);
  distag_context_release(context);
  distag_tensor_release(x);
  return is_ok;
}

static void train(run_result *result, distag_worker *worker) {
  int tries = 0;
  while (tries < kMostTries && result->late < 3 && !train_once(result, worker)) ++tries;
  if (tries == kMostTries) ++result->others;
}

void run_in_process(const run_plan *plan, run_result *result) {
  distag_worker *workers[2] = {NULL, NULL};
  allocations_count_from_here(&plan->missing);
  for (int i = 0; i < 2; ++i) workers[i] = make_worker(result, i, "inproc://shortage", NULL, DISTAG_EXECUTOR_POOL);
  if (start_both(result, workers)) {
    train(result, workers[0]);
    stop_both(result, workers);
  }
  result->allocations = allocations_stop();
  release_both(result, workers);
}

/* The keys with which the two speak: that of the user, that of a group, or one for each worker. */
typedef enum key_kind { kUserKey, kGroupKey, kWorkerKeys } key_kind;

/* Made before the processes part. */
static distag_key_pair pairs[2] = {DISTAG_KEY_PAIR_INIT, DISTAG_KEY_PAIR_INIT};
static const char *const kNames[2] = {"w0", "w1"};
static const char *const kPublicKeys[2] = {pairs[0].public_key, pairs[1].public_key};

static distag_security_options security_of(int32_t rank, key_kind keys) {
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  if (keys == kGroupKey) security.group_key = "0123456789abcdef0123456789abcdef";
  if (keys == kWorkerKeys) {
    security.secret_key = pairs[rank].secret_key;
    security.peer_names = kNames;
    security.peer_keys = kPublicKeys;
    security.peer_count = 2;
  }
  return security;
}

/* The list as it is: no peer is lost by that. */
static void set_peers(run_result *result, distag_worker *worker) {
  distag_error err = DISTAG_ERROR_INIT;
  int tries = 0;
  while (tries < kMostTries && !RUN(result, distag_worker_set_peers(worker, kNames, kPublicKeys, 2, &err))) ++tries;
  if (tries == kMostTries) run_note_wrong(result, "tries to set the peers", tries, 0);
}

/* How the processes of a run meet and speak. */
typedef struct pairing {
  const char *rendezvous;
  key_kind keys;
  int32_t short_rank; /* of the one whose memory is short */
  int64_t start_time;
} pairing;

/* Runs a member of a pair of processes; `plan` is NULL in the member that gets all memory it asks for. */
static void run_member(int32_t rank, const run_plan *plan, const pairing *pair, run_result *result) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  const distag_security_options security = security_of(rank, pair->keys);
  options.rank = rank;
  options.rendezvous = pair->rendezvous;
  options.bind = "tcp://127.0.0.1:0";
  options.security = &security;
  allocations_count_from_here(plan == NULL ? NULL : &plan->missing);
  distag_worker *worker = make_worker_with(result, &options);
  if (worker != NULL) {
    if (run_each(result, distag_worker_start_async, "distag_worker_start_async", &worker, 1, pair->start_time, NULL)) {
      if (pair->keys == kWorkerKeys) set_peers(result, worker);
      if (rank == 0) train(result, worker);
      run_each(result, distag_worker_shutdown_async, "distag_worker_shutdown_async", &worker, 1, 2 * kShutdownTime,
               NULL);
    }
    result->allocations = allocations_stop();
    RUN(result, distag_worker_shutdown(worker, kShutdownTime, NULL, &err));
    distag_worker_release(worker);
  }
  result->handles = (long long)distag_get_handle_count();
}

/* The other process is this one's child. Its findings count too, once this process is well. */
static void run_pair(const run_plan *plan, const pairing *pair, run_result *result) {
  run_result *const other = mmap(NULL, sizeof *other, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (other == MAP_FAILED) return run_note_wrong(result, "mmap", 0, 1);
  for (int i = 0; i < 2; ++i) distag_security_create_keys(&pairs[i], NULL);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_member(1 - pair->short_rank, NULL, pair, other);
    _exit(0);
  }
  run_member(pair->short_rank, plan, pair, result);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) run_note_wrong(result, "the end of the other process", status, 0);
  result->late += other->late;
  result->others += other->others;
  result->wrong += other->wrong;
  result->refusals += other->refusals;
  result->handles += other->handles;
  if (other->note[0] != '\0') {
    const size_t used = strlen(result->note);
    snprintf(result->note + used, sizeof result->note - used, "%s%s", used == 0 ? "" : "; the other: ", other->note);
  }
  munmap(other, sizeof *other);
}

static void run_tcp(const run_plan *plan, run_result *result, int32_t short_rank, key_kind keys) {
  char rendezvous[512];
  snprintf(rendezvous, sizeof rendezvous, "file://%s", plan->directory);
  run_pair(plan, &(pairing){rendezvous, keys, short_rank, kStartTime}, result);
}

void run_tcp_caller(const run_plan *plan, run_result *result) { run_tcp(plan, result, 0, kUserKey); }
void run_tcp_server(const run_plan *plan, run_result *result) { run_tcp(plan, result, 1, kUserKey); }
void run_group_key(const run_plan *plan, run_result *result) { run_tcp(plan, result, 0, kGroupKey); }
void run_worker_keys(const run_plan *plan, run_result *result) { run_tcp(plan, result, 1, kWorkerKeys); }

/* Waits until no member has a place below the prefix: for as long as a lease at most. */
static void await_no_member(run_result *result, const char *prefix) {
  char members[80];
  long left = 1;
  snprintf(members, sizeof members, "%s/member", prefix);
  for (int i = 0; i < 160 && left != 0; ++i) {
    left = etcd_server_count_keys(members);
    if (left != 0) poll(NULL, 0, 50);
  }
  if (left != 0) run_note_wrong(result, "members left in etcd", (double)left, 0);
}

/* A group in etcd. All allocations of the process are refused in turn, of distag or of libcurl. That is loaded before:
 * a dlopen that gets no memory half way leaves the lock of the loader taken (glibc 2.36), and the next dlopen of the
 * process, whosever it is, waits for ever. What the shortage left in etcd is no longer there than a lease, and the next
 * group at the same address, which gets all memory, meets, works and leaves nothing. */
static void run_etcd(const run_plan *plan, run_result *result, int32_t short_rank) {
  static run_result next;
  char prefix[64], rendezvous[256];
  snprintf(prefix, sizeof prefix, "/shortage/%d", (int)getpid());
  etcd_server_write_uri(prefix, rendezvous, sizeof rendezvous);
  run_pair(plan, &(pairing){rendezvous, kUserKey, short_rank, kStartTime}, result);
  await_no_member(result, prefix);
  run_pair(&(run_plan){{0, 0, 0, 0}, plan->directory}, &(pairing){rendezvous, kUserKey, short_rank, kEtcdStartTime},
           &next);
  if (next.late + next.others + next.wrong + next.refusals != 0) {
    ++result->wrong;
    snprintf(result->note, sizeof result->note, "the next group: %.380s", next.note);
  }
  result->handles += next.handles;
  const long left = etcd_server_count_keys(prefix);
  if (left != 0) run_note_wrong(result, "keys left in etcd", (double)left, 0);
}

void run_etcd_first(const run_plan *plan, run_result *result) { run_etcd(plan, result, 0); }
void run_etcd_second(const run_plan *plan, run_result *result) { run_etcd(plan, result, 1); }
