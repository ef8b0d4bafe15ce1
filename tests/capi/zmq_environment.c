/* Variables of the environment that are named as options of libzmq change nothing, whatever carries tcp:// and ipc://:
 * nothing in this process asks for one, and workers meet and call each other as without them. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

static const char *const kVariables[] = {
    "ZMQ_IO_THREADS=7",
    "ZMQ_MAX_SOCKETS=1",
    "ZMQ_THREAD_NAME_PREFIX=9",
    "ZMQ_BLOCKY=1",
    "ZMQ_LINGER=-1",
    "ZMQ_SNDHWM=1",
    "ZMQ_RCVHWM=1",
    "ZMQ_MAXMSGSIZE=1",
    "ZMQ_HANDSHAKE_IVL=1",
    "ZMQ_HEARTBEAT_IVL=1",
    "ZMQ_HEARTBEAT_TIMEOUT=1",
    "ZMQ_CONNECT_TIMEOUT=1",
    "ZMQ_RECONNECT_IVL=1",
    "ZMQ_IMMEDIATE=1",
    "ZMQ_SOCKS_PROXY=127.0.0.1",
    "ZMQ_TCP_ACCEPT_FILTER=192.0.2.1",
    "ZMQ_USE_FD=0",
    "ZMQ_ROUTER_HANDOVER=1",
    "ZMQ_ROUTER_MANDATORY=0",
    "ZMQ_PROBE_ROUTER=1",
    "ZMQ_CURVE_SERVER=0",
    "ZMQ_CURVE_SERVERKEY=x",
    "ZMQ_CURVE_PUBLICKEY=x",
    "ZMQ_CURVE_SECRETKEY=x",
    "ZMQ_PLAIN_USERNAME=x",
    "ZMQ_ZAP_DOMAIN=none",
    "ZMQ_ZAP_ENFORCE_DOMAIN=1",
    "ZMQ_ROUTING_ID=x",
    "ZMQ_IPC_FILTER_UID=0",
    "ZMQ_BINDTODEVICE=none",
    "ZMQ_TOS=255",
    "ZMQ_AFFINITY=0",
};

static distag_error err = DISTAG_ERROR_INIT;
static atomic_int asked_for_zmq, asked_for_engine;

/* Replaces getenv of the C library, for everything that is linked in. */
__attribute__((visibility("default"))) char *getenv(const char *name) {
  const size_t size = strlen(name);
  if (strncmp(name, "ZMQ", 3) == 0) atomic_fetch_add(&asked_for_zmq, 1);
  if (strcmp(name, "DISTAG_SOCKET_ENGINE") == 0) atomic_fetch_add(&asked_for_engine, 1);
  for (char **at = environ; at != NULL && *at != NULL; ++at)
    if (strncmp(*at, name, size) == 0 && (*at)[size] == '=') return *at + size + 1;
  return NULL;
}

static int count_threads(void) {
  int count = 0;
  DIR *const folder = opendir("/proc/self/task");
  while (folder != NULL && readdir(folder) != NULL) ++count;
  if (folder != NULL) closedir(folder);
  return count;
}

/* Over tcp with a key; a message of both engines is above what the variables say. Returns the threads that it took. */
static int meet(void) {
  char rendezvous[64], folder[] = "/tmp/distag-test-XXXXXX";
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  distag_worker *workers[2] = {NULL, NULL};
  distag_tensor *x = NULL, *y = NULL;
  distag_value *answer = NULL;
  double first = 0;
  const int before = count_threads();
  CHECK(mkdtemp(folder) != NULL);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", folder);
  security.group_key = "a key of 32 or more characters, of a group";
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = group_options(rank, 2, rendezvous);
    options.bind = "tcp://127.0.0.1:0";
    options.thread_count = 1;
    options.security = &security;
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
    CHECK_OK(distag_worker_register(workers[rank], "triple", group_triple, NULL, NULL, NULL, &err));
  }
  CHECK_INT(group_start(workers, 2), 0);
  CHECK_OK(distag_full(2, DISTAG_FLOAT64, (const int64_t[]){50000}, 1, &x, &err));
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(distag_call(workers[i], NULL, i == 0 ? "w1" : "w0", "triple",
                         (distag_value *[]){distag_tensor_as_value(x)}, 1, NULL, &answer, &err));
    CHECK_OK(distag_value_get_tensor(answer, &y, &err));
    double values[50000];
    CHECK_OK(distag_tensor_copy_data(y, values, sizeof values, &err));
    first = values[0];
    CHECK_NEAR(first, 6);
    distag_value_release(answer);
  }
  const int took = count_threads() - before;
  distag_tensor_release(x);
  CHECK_INT(group_shutdown(workers, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
  CHECK_INT(rmdir(folder), 0);
  return took;
}

int main(void) {
  const int threads = meet();
  for (size_t i = 0; i < sizeof kVariables / sizeof *kVariables; ++i) {
    char *const variable = strdup(kVariables[i]);
    CHECK_INT(putenv(variable), 0);
  }
  CHECK_INT(meet(), threads);
  CHECK_INT(atomic_load(&asked_for_zmq), 0);
  CHECK(atomic_load(&asked_for_engine) > 0); /* else nothing was asked here */
  return check_end();
}
