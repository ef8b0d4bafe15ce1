/* Ten thousand connections of strangers that are silent, talk nonsense, go half the way of a handshake or read nothing,
 * at two workers and at their rendezvous: descriptors and memory are bounded, and so is the log, which reports them;
 * all are counted, and members go on, also a member that joins. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "capi/check.h"
#include "capi/support/engine.h"
#include "capi/support/processes.h"
#include "capi/support/resident.h"

enum { kConnections = 10000, kTargets = 3, kSilentMost = 1024 /* of each target */, kFew = 64 };
static const int64_t kMostMore = (int64_t)kTargets * kSilentMost * (28 << 10);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kIsMeasured = 0 }; /* a sanitizer has memory of its own */
#else
enum { kIsMeasured = 1 };
#endif

static distag_error err = DISTAG_ERROR_INIT;
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static int log_lines, refusals_logged;

static void note(void *user_data, distag_log_level_type level, const char *message) {
  (void)user_data, (void)level;
  pthread_mutex_lock(&log_mutex);
  const int is_named = engine_keeps("the address of a stranger is logged");
  if (strstr(message, is_named ? "a connection from tcp://127.0.0.1:" : "a connection from ") != NULL)
    ++refusals_logged;
  if (++log_lines <= 5) printf("log: %s\n", message);
  pthread_mutex_unlock(&log_mutex);
}

/* ---- the strangers, a process of their own ---- */

/* The first bytes of a client in CURVE: signature, version 3.0, the mechanism. */
static size_t greeting(unsigned char *bytes) {
  memset(bytes, 0, 64);
  bytes[0] = 0xff;
  bytes[9] = 0x7f;
  bytes[10] = 3;
  memcpy(bytes + 12, "CURVE", 5);
  return 64;
}

static void say_something(int fd, int kind) {
  unsigned char bytes[512];
  size_t size = 0;
  if (kind == 1) {
    for (; size < sizeof bytes; ++size) bytes[size] = (unsigned char)(size * 31 + 7);
  } else if (kind >= 2) {
    size = greeting(bytes);
    /* And a command whose rest never comes. */
    if (kind == 3) memcpy(bytes + size, "\x04\xc8\x05HELLO\x01", 9), size += 9;
  }
  if (size > 0 && send(fd, bytes, size, MSG_NOSIGNAL) < 0) return;
}

static int connect_to(int port) {
  struct sockaddr_in address;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons((uint16_t)port);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) perror("connect");
  return fd;
}

/* Connects when it is told the ports, says how many times it could, and holds all until it is told to end. */
static int run_strangers(int from, int to) {
  int ports[kTargets], count = 0;
  struct rlimit descriptors;
  char end;
  getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  setrlimit(RLIMIT_NOFILE, &descriptors);
  if (read(from, ports, sizeof ports) != sizeof ports) return 1;
  for (int i = 0; i < kConnections; ++i) {
    const int fd = connect_to(ports[i % kTargets]);
    if (fd < 0) continue;
    ++count;
    say_something(fd, i / kTargets % 4);
  }
  return write(to, &count, sizeof count) != sizeof count || read(from, &end, 1) != 0;
}

/* ---- the members ---- */

static int open_descriptors(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (folder != NULL && readdir(folder) != NULL) ++count;
  if (folder != NULL) closedir(folder);
  return count;
}

static int free_port(void) {
  struct sockaddr_in address;
  socklen_t size = sizeof address;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK_INT(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  CHECK_INT(getsockname(fd, (struct sockaddr *)&address, &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

static distag_worker *start(int rank, const char *name, const char *rendezvous) {
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  security.group_key = "a key of 32 or more characters, of this group";
  options.rank = rank;
  options.world_size = -1;
  options.name = name;
  options.rendezvous = rendezvous;
  options.bind = "tcp://127.0.0.1:0";
  options.thread_count = 2;
  options.security = &security;
  options.on_log = note;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  return worker;
}

/* The port of a worker in the report of another member. */
static int port_of(distag_worker *observer, const char *name) {
  static char report[1 << 16];
  char key[64];
  size_t size = 0;
  int port = 0;
  CHECK_OK(distag_worker_copy_report(observer, report, sizeof report, &size, &err));
  snprintf(key, sizeof key, "\"%s\"", name);
  const char *const members = strstr(report, "\"members\"");
  for (const char *at = members; at != NULL && port == 0; at = strstr(at + 1, "tcp://127.0.0.1:")) {
    const char *const begin = memrchr(report, '{', (size_t)(at - report)), *const end = strchr(at, '}');
    const char *const found = begin == NULL ? NULL : strstr(begin, key);
    if (found != NULL && end != NULL && found < end) sscanf(at, "tcp://127.0.0.1:%d", &port);
  }
  CHECK(port != 0);
  return port;
}

/* How long the longest of the calls took, each way, until the strangers say so. */
static int64_t call_until(distag_worker *const *workers, int from) {
  struct pollfd told = {from, POLLIN, 0};
  int64_t longest = 0;
  distag_tensor *one = NULL;
  const double value = 1;
  CHECK_OK(distag_tensor_create(&value, sizeof value, DISTAG_FLOAT64, NULL, 0, &one, &err));
  distag_value *args[] = {distag_tensor_as_value(one)};
  do {
    for (int i = 0; i < 2; ++i) {
      const int64_t begin = now_ns();
      CHECK_OK(distag_call(workers[i], NULL, i == 0 ? "w1" : "w0", "neg", args, 1, NULL, NULL, &err));
      const int64_t took = now_ns() - begin;
      if (took > longest) longest = took;
    }
  } while (err.code == DISTAG_OK && poll(&told, 1, 0) == 0);
  distag_tensor_release(one);
  return longest;
}

static uint64_t refused_by(distag_worker *worker) {
  distag_stats stats = DISTAG_STATS_INIT;
  CHECK_OK(distag_worker_get_stats(worker, &stats, &err));
  return stats.messages_refused;
}

/* Each address logs the first refusal, and then one a second at most. */
static void check_log(int64_t begin) {
  pthread_mutex_lock(&log_mutex);
  const int lines = log_lines, refusals = refusals_logged;
  pthread_mutex_unlock(&log_mutex);
  const int64_t seconds = 1 + (now_ns() - begin) / DISTAG_SECOND;
  printf("%d lines in %lld s, %d of them of connections\n", lines, (long long)seconds, refusals);
  CHECK(refusals >= kTargets);
  CHECK(lines <= kTargets * (seconds + 1));
}

static void be_flooded(int to, int from) {
  struct rlimit descriptors_limit;
  getrlimit(RLIMIT_NOFILE, &descriptors_limit);
  descriptors_limit.rlim_cur = descriptors_limit.rlim_max;
  const int is_bounded = engine_keeps("silent connections");
  if (!is_bounded) setrlimit(RLIMIT_NOFILE, &descriptors_limit);
  char rendezvous[64];
  int ports[kTargets] = {free_port()}, count = 0;
  snprintf(rendezvous, sizeof rendezvous, "tcp://127.0.0.1:%d", ports[0]);
  distag_worker *workers[3] = {start(0, "w0", rendezvous), start(-1, "w1", rendezvous), NULL};
  for (int i = 0; i < 2; ++i) ports[1 + i] = port_of(workers[1 - i], i == 0 ? "w0" : "w1");
  const int descriptors = open_descriptors();
  const int64_t memory = resident_bytes(), begin = now_ns();
  CHECK(write(to, ports, sizeof ports) == sizeof ports);
  const int64_t longest = call_until(workers, from);
  CHECK(read(from, &count, sizeof count) == sizeof count && count > kConnections / 2);
  const int64_t more = resident_bytes() - memory;
  const int held = open_descriptors() - descriptors;
  workers[2] = start(-1, "w2", rendezvous);
  check_log(begin);
  printf("%d connections: %d are held, with %lld KiB; the longest call took %lld ms\n", count, held,
         (long long)more >> 10, (long long)(longest / DISTAG_MILLISECOND));
  if (is_bounded) CHECK(held <= kTargets * kSilentMost + kFew);
  if (kIsMeasured && engine_keeps("memory that a stranger takes")) CHECK(more < kMostMore);
  printf("figure: capi_strangers.longest_call_ms %.1f ms\n", (double)longest / DISTAG_MILLISECOND);
  /* A client that does not end its handshake within five seconds is disconnected. */
  while (open_descriptors() - descriptors > kFew && now_ns() - begin < 240 * DISTAG_SECOND) poll(NULL, 0, 20);
  CHECK(open_descriptors() - descriptors <= kFew);
  const uint64_t refused = refused_by(workers[0]) + refused_by(workers[1]);
  printf("%llu of them were counted\n", (unsigned long long)refused);
  CHECK(refused + kFew >= (uint64_t)count && refused <= (uint64_t)count);
  check_log(begin);
  for (int i = 2; i >= 0; --i) {
    distag_stats stats = DISTAG_STATS_INIT;
    CHECK_OK(distag_worker_get_stats(workers[i], &stats, &err));
    CHECK_INT(stats.peers_lost, 0);
    CHECK_OK(distag_worker_shutdown(workers[i], 120 * DISTAG_SECOND, NULL, &err));
    distag_worker_release(workers[i]);
  }
}

int main(void) {
  int there[2], back[2], status = 0;
  if (pipe(there) != 0 || pipe(back) != 0) return 1;
  const pid_t strangers = fork();
  if (strangers == 0) {
    close(there[1]), close(back[0]);
    _exit(run_strangers(there[0], back[1]));
  }
  close(there[0]), close(back[1]);
  be_flooded(there[1], back[0]);
  close(there[1]);
  CHECK(waitpid(strangers, &status, 0) == strangers && status == 0);
  close(back[0]);
  return check_end();
}
