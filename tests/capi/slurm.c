/* A step of Slurm, as its variables describe it: four processes of this machine meet at "slurm://", with no address. */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"

enum { kTasks = 4, kJobs = 12768, kStep = 3, kFirstPort = 20000, kStepsOfAJob = 16 };

static distag_error err = DISTAG_ERROR_INIT;

static void set_number(const char *name, int number) {
  char text[16];
  snprintf(text, sizeof text, "%d", number);
  setenv(name, text, 1);
}

/* Listens at the port of a job, so that no other process has it. */
static int hold_port(int job) {
  struct sockaddr_in address = {0};
  const int held = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons((uint16_t)(kFirstPort + (job % kJobs * kStepsOfAJob + kStep) % kJobs));
  if (bind(held, (struct sockaddr *)&address, sizeof address) == 0 && listen(held, 1) == 0) return held;
  close(held);
  return -1;
}

static void enter_step(int job, int task, int tasks) {
  static const char *const kOthers[] = {
      "RANK",        "WORLD_SIZE", "DISTAG_RANK",    "DISTAG_WORLD_SIZE",    "DISTAG_RENDEZVOUS",   "MASTER_ADDR",
      "MASTER_PORT", "PMIX_RANK",  "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX"};
  for (size_t i = 0; i < sizeof kOthers / sizeof *kOthers; ++i) unsetenv(kOthers[i]);
  set_number("SLURM_JOB_ID", job);
  set_number("SLURM_STEP_ID", kStep);
  set_number("SLURM_PROCID", task);
  set_number("SLURM_LOCALID", task);
  set_number("SLURM_STEP_NUM_TASKS", tasks);
  setenv("SLURM_NODEID", "0", 1);
  setenv("SLURM_STEP_NODELIST", "n[1]", 1);
}

static int work(int task) {
  distag_environment place = DISTAG_ENVIRONMENT_INIT;
  distag_worker *worker = NULL;
  distag_value *own = NULL, *all = NULL;
  CHECK_OK(distag_get_environment(&place, &err));
  CHECK_INT(place.rank, task);
  CHECK_INT(place.local_rank, task);
  CHECK_INT(strcmp(place.launcher, "slurm"), 0);
  CHECK_OK(distag_worker_create(NULL, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 60 * DISTAG_SECOND, &err));
  CHECK_INT(distag_worker_get_rank(worker), task);
  CHECK_INT(distag_worker_get_world_size(worker), kTasks);
  CHECK_OK(distag_value_create_int64(task, &own, &err));
  CHECK_OK(distag_worker_all_gather(worker, own, NULL, 0, 60 * DISTAG_SECOND, &all, &err));
  CHECK_INT(distag_value_get_count(all), kTasks);
  distag_value_release(all);
  distag_value_release(own);
  CHECK_OK(distag_worker_shutdown(worker, 60 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  return check_end();
}

static void a_step_of_four(int job) {
  pid_t tasks[kTasks];
  for (int task = 0; task < kTasks; ++task) {
    tasks[task] = fork();
    if (tasks[task] != 0) continue;
    enter_step(job, task, kTasks);
    _exit(work(task));
  }
  for (int task = 0; task < kTasks; ++task) {
    int status = -1;
    waitpid(tasks[task], &status, 0);
    CHECK_INT(status, 0);
  }
}

static void a_port_in_use(int job) {
  distag_worker *worker = NULL;
  enter_step(job, 0, 2);
  CHECK_OK(distag_worker_create(NULL, &worker, &err));
  CHECK_FAILS(distag_worker_start(worker, 120 * DISTAG_SECOND, &err), DISTAG_E_INVALID_STATE, "is in use");
  distag_worker_shutdown(worker, 0, NULL, NULL);
  distag_worker_release(worker);
}

int main(void) {
  int job = 1 + (int)getpid() % kJobs, held;
  while ((held = hold_port(job)) < 0) ++job;
  close(held);
  a_step_of_four(job);
  while ((held = hold_port(job)) < 0) ++job;
  a_port_in_use(job);
  close(held);
  return check_end();
}
