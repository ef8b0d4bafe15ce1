/* The place that a launcher gives: distag_get_environment. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "capi/check.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_environment place;

static const char *const kNames[] = {"DISTAG_RANK",
                                     "DISTAG_WORLD_SIZE",
                                     "RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "LOCAL_WORLD_SIZE",
                                     "GROUP_RANK",
                                     "GROUP_WORLD_SIZE",
                                     "DISTAG_RESTART_COUNT",
                                     "TORCHELASTIC_RESTART_COUNT",
                                     "PMIX_RANK",
                                     "PMIX_NAMESPACE",
                                     "OMPI_COMM_WORLD_RANK",
                                     "SLURM_STEP_ID",
                                     "SLURM_PROCID",
                                     "JOB_COMPLETION_INDEX",
                                     "DISTAG_LOCAL_RANK",
                                     "DISTAG_LOCAL_WORLD_SIZE",
                                     "DISTAG_GROUP_RANK",
                                     "DISTAG_GROUP_WORLD_SIZE"};

static void clear(void) {
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i) unsetenv(kNames[i]);
  place = (distag_environment)DISTAG_ENVIRONMENT_INIT;
  err.code = DISTAG_OK;
}

static void check_unknown(void) {
  CHECK_INT(place.rank, -1);
  CHECK_INT(place.world_size, 0);
  CHECK_INT(place.local_rank, -1);
  CHECK_INT(place.local_size, 0);
  CHECK_INT(place.node, -1);
  CHECK_INT(place.node_count, 0);
  CHECK_INT(place.restart, 0);
  CHECK_INT(place.launcher[0], 0);
}

static void what_is_missing(void) {
  clear();
  place.rank = 7;
  place.local_size = 7;
  place.launcher[0] = 'x';
  CHECK_FAILS(distag_get_environment(&place, &err), DISTAG_E_INVALID_ARGUMENT, "WORLD_SIZE, RANK;");
  CHECK(strstr(err.message, "distag_get_environment") != NULL);
  check_unknown();
  clear();
  setenv("JOB_COMPLETION_INDEX", "1", 1);
  CHECK_FAILS(distag_get_environment(&place, &err), DISTAG_E_INVALID_ARGUMENT,
              "WORLD_SIZE (JOB_COMPLETION_INDEX is set)");
  clear();
  setenv("RANK", "1x", 1);
  setenv("WORLD_SIZE", "2", 1);
  CHECK_FAILS(distag_get_environment(&place, &err), DISTAG_E_INVALID_ARGUMENT, "RANK=\"1x\" is no number in 0 .. 1");
  check_unknown();
  CHECK_INT(distag_get_environment(&place, NULL), DISTAG_E_INVALID_ARGUMENT);
}

static void what_is_told(void) {
  clear();
  setenv("RANK", "3", 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("LOCAL_RANK", "1", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  setenv("GROUP_RANK", "1", 1);
  setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
  CHECK_OK(distag_get_environment(&place, &err));
  CHECK_INT(place.struct_size, sizeof place);
  CHECK_INT(place.rank, 3);
  CHECK_INT(place.world_size, 4);
  CHECK_INT(place.local_rank, 1);
  CHECK_INT(place.local_size, 2);
  CHECK_INT(place.node, 1);
  CHECK_INT(place.node_count, 0);
  CHECK_INT(place.restart, 2);
  CHECK_INT(strcmp(place.launcher, "torchrun"), 0);
  setenv("DISTAG_RANK", "0", 1);
  setenv("DISTAG_WORLD_SIZE", "9", 1);
  CHECK_OK(distag_get_environment(&place, &err));
  CHECK_INT(place.world_size, 9);
  CHECK_INT(place.local_rank, -1);
  CHECK_INT(strcmp(place.launcher, "own"), 0);
}

/* A launcher that speaks PMIx sets both. For its answers then see tests/pmix. */
static void half_a_launcher(void) {
  clear();
  setenv("PMIX_RANK", "1", 1);
  CHECK_FAILS(distag_get_environment(&place, &err), DISTAG_E_INVALID_ARGUMENT, "PMIX_NAMESPACE (PMIX_RANK is set");
  check_unknown();
}

/* In a later version's struct the fields that this version knows are filled, and the rest is zeroed. */
static void sizes(void) {
  struct {
    distag_environment known;
    int64_t later;
  } larger = {DISTAG_ENVIRONMENT_INIT, 5};
  clear();
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  larger.known.struct_size = sizeof larger;
  CHECK_OK(distag_get_environment(&larger.known, &err));
  CHECK_INT(larger.known.struct_size, sizeof larger);
  CHECK_INT(larger.known.world_size, 1);
  CHECK_INT(larger.later, 0);
  place.struct_size = 0;
  place.rank = 7;
  CHECK_FAILS(distag_get_environment(&place, &err), DISTAG_E_INVALID_ARGUMENT, "distag_environment");
  CHECK_INT(place.rank, 7);
}

static char log_text[2048];

static void note(void *user_data, int32_t level, const char *message) {
  (void)user_data;
  (void)level;
  strncat(log_text, message, sizeof log_text - strlen(log_text) - 1);
}

/* A start takes the same place, and logs which launcher gave it. */
static void a_start(void) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  clear();
  setenv("JOB_COMPLETION_INDEX", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  options.rendezvous = "inproc://environment";
  options.on_log = note;
  options.log_level = DISTAG_LOG_INFO;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_INT(distag_worker_get_world_size(worker), 1);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  CHECK(strstr(log_text, "started by kubernetes: rank 0 of 1") != NULL);
  distag_worker_release(worker);
  setenv("SLURM_PROCID", "0", 1);
  unsetenv("WORLD_SIZE");
  unsetenv("JOB_COMPLETION_INDEX");
  worker = NULL;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_FAILS(distag_worker_start(worker, 120 * DISTAG_SECOND, &err), DISTAG_E_INVALID_ARGUMENT,
              "start the workers by srun");
  distag_worker_shutdown(worker, 0, NULL, NULL);
  distag_worker_release(worker);
}

int main(void) {
  what_is_missing();
  what_is_told();
  half_a_launcher();
  sizes();
  a_start();
  return check_end();
}
