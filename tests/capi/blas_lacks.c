/* Without room for the threads of OpenBLAS, or for its memory, distag loads without output or a signal, and its
 * products run on the calling threads: they are right, or fail for the lack. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/stacks.h"

#if !defined(__has_feature)
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { kMayFork = 0, kMayLack = 0 }; /* it does not follow children, and has a thread of its own */
#elif defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
enum { kMayFork = 1, kMayLack = 0 }; /* it takes terabytes of address space, and a thread at the end */
#else
enum { kMayFork = 1, kMayLack = 1 };
#endif
enum { kSize = 192, kSeconds = 120, kNotStarted = 127 };

/* ---- In the process with the lack. ---- */

/* [i][j] = i, times ones. */
static distag_status multiply(distag_error *err) {
  static const int64_t shape[] = {kSize, kSize}, column[] = {kSize, 1};
  distag_tensor *count = NULL, *rows = NULL, *ones = NULL, *wide = NULL, *product = NULL;
  float seen[kSize * kSize] = {0};
  int wrong = 0;
  distag_arange(0, kSize, 1, DISTAG_FLOAT32, &count, err);
  distag_reshape(count, column, 2, &rows, err);
  distag_full(1, DISTAG_FLOAT32, shape, 2, &ones, err);
  distag_mul(rows, ones, &wide, err);
  distag_matmul(wide, ones, &product, err);
  distag_tensor_copy_data(product, seen, sizeof seen, err);
  for (int i = 0; i < kSize * kSize && err->code == DISTAG_OK; ++i) wrong += seen[i] != (float)(i / kSize * kSize);
  CHECK_INT(wrong, 0);
  distag_tensor_release(product);
  distag_tensor_release(wide);
  distag_tensor_release(ones);
  distag_tensor_release(rows);
  distag_tensor_release(count);
  return err->code;
}

static void *multiply_often(void *unused) {
  for (int i = 0; i < 20; ++i) {
    distag_error err = DISTAG_ERROR_INIT;
    CHECK_OK(multiply(&err));
  }
  return unused;
}

static int count_processors(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

static int count_blas_threads(void) {
  void *const openblas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD);
  if (openblas == NULL) return 0;
  int (*const count)(void) = (int (*)(void))dlsym(openblas, "openblas_get_num_threads");
  return count();
}

/* `lack`: "threads", "stacks", or the address space in MiB. */
static int run_with_lack(const char *lack, int processors) {
  distag_error err = DISTAG_ERROR_INIT;
  pthread_t other;
  const int megabytes = atoi(lack);
  CHECK_INT(count_processors(), processors);
  if (multiply(&err) != DISTAG_OK && megabytes > 0 && megabytes < 400) {
    CHECK(err.code == DISTAG_E_OUT_OF_MEMORY || err.code == DISTAG_E_UNSUPPORTED);
    return check_end();
  }
  CHECK_INT(err.code, DISTAG_OK);
  if (megabytes == 0) CHECK_INT(count_blas_threads(), 1);
  if (megabytes > 0 && pthread_create(&other, NULL, multiply_often, NULL) == 0) { /* two products at a time */
    multiply_often(NULL);
    pthread_join(other, NULL);
  }
  return check_end();
}

/* A fork ends OpenBLAS's threads; then there is no room for new ones. */
static void try_with_and_without_room(void) {
  distag_error err = DISTAG_ERROR_INIT;
  set_stack_size(kNoRoomForAStack);
  if (count_blas_threads() > 1) {
    CHECK_FAILS(multiply(&err), DISTAG_E_OUT_OF_MEMORY, "OPENBLAS_NUM_THREADS=1");
  } else {
    CHECK_OK(multiply(&err));
  }
  set_stack_size(kPlainStack);
  CHECK_OK(multiply(&err));
}

static int run_with_forks(void) {
  distag_error err = DISTAG_ERROR_INIT;
  int status = -1;
  CHECK_OK(multiply(&err));
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSeconds);
    try_with_and_without_room();
    _exit(check_failures != 0);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_INT(status, 0);
  try_with_and_without_room();
  return check_end();
}

/* ---- Outside of it. ---- */

/* Denies threads as RLIMIT_NPROC does for users other than root. A filter cannot see the flags of clone3: ENOSYS. */
static int deny_threads(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int set_limit(__rlimit_resource_t resource, rlim_t soft) {
  struct rlimit limit;
  getrlimit(resource, &limit);
  limit.rlim_cur = soft;
  return setrlimit(resource, &limit) == 0;
}

static int make_lack(const char *lack) {
  if (strcmp(lack, "forks") == 0) return 1;
  if (strcmp(lack, "threads") == 0) return deny_threads();
  if (strcmp(lack, "stacks") == 0) return set_limit(RLIMIT_STACK, (rlim_t)1 << 46);
  return set_limit(RLIMIT_AS, (rlim_t)atoi(lack) << 20);
}

/* Runs this program again, and reads all that it prints. */
static void run_again(const char *lack) {
  char printed[4096] = "", processors[16];
  size_t length = 0;
  int ends[2], status = -1;
  snprintf(processors, sizeof processors, "%d", count_processors());
  if (!CHECK(pipe(ends) == 0)) return;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    alarm(kSeconds); /* a spin is a failure */
    setenv("OPENBLAS_NUM_THREADS", "4", 1);
    if (make_lack(lack)) execl("/proc/self/exe", "blas_lacks", lack, processors, (char *)NULL);
    _exit(kNotStarted);
  }
  close(ends[1]);
  for (ssize_t got = 1; got > 0; length += got > 0 ? (size_t)got : 0) {
    got = read(ends[0], printed + length, sizeof printed - 1 - length);
  }
  close(ends[0]);
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  if (atoi(lack) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted) return; /* not even loaded */
  if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0) || !CHECK_INT((int)length, 0)) {
    fprintf(stderr, "  with the lack %s: status %x, printed: %s\n", lack, (unsigned)status, printed);
  }
}

int main(int argc, char **argv) {
  static const char *const spaces[] = {"60", "100", "150", "200", "250", "300", "350", "400", "600", "1000", "4000"};
  if (argc == 3 && strcmp(argv[1], "forks") == 0) return run_with_forks();
  if (argc == 3) return run_with_lack(argv[1], atoi(argv[2]));
  if (kMayFork) run_again("forks");
  if (!kMayLack) return check_end();
  run_again("threads");
  run_again("stacks");
  for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; ++i) run_again(spaces[i]);
  return check_end();
}
