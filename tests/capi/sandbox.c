/* A sandbox that denies one system call: the error names the call and the sandbox, not a limit or a key. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"

enum { kSkipped = 77 };

/* From now on the process gets EPERM for that call. False: the kernel has no filters. */
static int deny(int number) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void run_group(const char *folder, const char *bind, distag_error *err) {
  distag_worker *worker[2] = {NULL};
  distag_future *start[2] = {NULL};
  distag_value *answer = NULL;
  distag_tensor *x = NULL;
  char uri[512];
  snprintf(uri, sizeof uri, "file://%s/meet", folder);
  for (int rank = 0; rank < 2; ++rank) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    options.rank = rank;
    options.world_size = 2;
    options.rendezvous = uri;
    options.bind = bind;
    distag_worker_create(&options, &worker[rank], err);
    distag_worker_start_async(worker[rank], 30 * DISTAG_SECOND, &start[rank], err);
  }
  for (int rank = 0; rank < 2; ++rank) distag_future_wait(start[rank], DISTAG_FOREVER, err);
  distag_arange(0, 3, 1, DISTAG_FLOAT32, &x, err);
  distag_value *args[] = {distag_tensor_as_value(x)};
  distag_call(worker[0], NULL, "worker1", "neg", args, 1, NULL, &answer, err);
  distag_value_release(answer);
  distag_tensor_release(x);
  for (int i = 0; i < 2; ++i) distag_future_release(start[i]), distag_worker_release(worker[i]);
}

typedef struct denial {
  const char *call;
  int number;
  const char *bind; /* NULL: sockets of this machine */
  int is_needed;    /* else the group does without it */
} denial;

static const denial kDenials[] = {
    {"epoll_create1", SYS_epoll_create1, NULL, 1},
    {"epoll_ctl", SYS_epoll_ctl, NULL, 1},
    {"timerfd_create", SYS_timerfd_create, NULL, 1},
    {"timerfd_settime", SYS_timerfd_settime, NULL, 1},
    {"eventfd", SYS_eventfd2, NULL, 1},
    {"getrandom", SYS_getrandom, NULL, 1},
    {"socket", SYS_socket, NULL, 1},
    {"bind", SYS_bind, NULL, 1},
    {"listen", SYS_listen, NULL, 1},
    {"connect", SYS_connect, NULL, 1},
    {"accept4", SYS_accept4, NULL, 1},
    {"getsockopt", SYS_getsockopt, NULL, 1},
    {"socket", SYS_socket, "tcp://127.0.0.1:0", 1},
    {"bind", SYS_bind, "tcp://127.0.0.1:0", 1},
    {"listen", SYS_listen, "tcp://127.0.0.1:0", 1},
    {"connect", SYS_connect, "tcp://127.0.0.1:0", 1},
    {"getsockname", SYS_getsockname, "tcp://127.0.0.1:0", 1},
    {"memfd_create", SYS_memfd_create, NULL, 0},
    {"recvmsg", SYS_recvmsg, NULL, 0},
    {"sendmsg", SYS_sendmsg, NULL, 1},
    {"setsockopt", SYS_setsockopt, NULL, 0},
    {"flock", SYS_flock, NULL, 0},
    {"inotify_init1", SYS_inotify_init1, NULL, 0},
    {"clone3", SYS_clone3, NULL, 1},
    {"prlimit64", SYS_prlimit64, NULL, 1},
};

static void check_denial(const denial *denied, const char *folder) {
  const pid_t child = fork();
  if (child == 0) {
    distag_error err = DISTAG_ERROR_INIT;
    alarm(120); /* a worker that hangs fails the test */
    if (!deny(denied->number)) _exit(kSkipped);
    run_group(folder, denied->bind, &err);
    printf("%-16s %s\n", denied->call, err.code == DISTAG_OK ? "goes without" : err.message);
    fflush(stdout);
    if (!denied->is_needed) {
      CHECK_INT(err.code, DISTAG_OK);
    } else {
      CHECK_INT(err.code, DISTAG_E_DENIED);
      CHECK(strstr(err.message, denied->call) != NULL);
      CHECK(strstr(err.message, "sandbox") != NULL);
    }
    _exit(check_failures != 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status == kSkipped << 8) {
    printf("skipped: this kernel has no seccomp filters\n");
    exit(0);
  }
  CHECK_INT(status, 0);
}

int main(void) {
  char folder[] = "/tmp/distag_sandboxXXXXXX";
  CHECK(mkdtemp(folder) != NULL);
  for (size_t i = 0; i < sizeof kDenials / sizeof *kDenials; ++i) check_denial(&kDenials[i], folder);
  char command[64];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  CHECK_INT(system(command), 0);
  return check_end();
}
