/* A worker that is reachable over tcp, and strangers who send what they should not: it refuses, says so once, goes on.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "capi/check.h"

enum { kMessages = 500 };

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *w;
static atomic_int logged;

static void on_log(void *user_data, int32_t level, const char *message) {
  (void)user_data;
  CHECK_INT(level, DISTAG_LOG_WARNING);
  CHECK(strstr(message, "a stranger was refused") != NULL);
  atomic_fetch_add(&logged, 1);
}

static distag_status nothing(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  (void)invocation;
  (void)told;
  return DISTAG_OK;
}

static int port_of_worker(void) {
  static const char kKey[] = "\"endpoint\": \"tcp://127.0.0.1:";
  char text[4096];
  size_t size = 0;
  CHECK_OK(distag_worker_copy_report(w, text, sizeof text, &size, &err));
  const char *found = strstr(text, kKey);
  return CHECK(found != NULL) ? atoi(found + sizeof kKey - 1) : 0;
}

static int dial(int port) {
  struct sockaddr_in address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_port = htons((uint16_t)port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_INT(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
  return fd;
}

static void send_all(int fd, const void *data, size_t size) {
  const char *next = data;
  while (size > 0) {
    const ssize_t sent = send(fd, next, size, MSG_NOSIGNAL);
    if (!CHECK(sent > 0)) return;
    next += sent;
    size -= (size_t)sent;
  }
}

/* As one who speaks ZMTP 3.0, a DEALER without security: its greeting, READY, and then messages of one frame each. */
static void send_garbage(int fd) {
  static const char kReady[] =
      "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06"
      "DEALER";
  static const char kMessage[] = "\x00\x07garbage";
  char greeting[64] = {0};
  greeting[0] = '\xff';
  greeting[9] = '\x7f';
  greeting[10] = 3;
  memcpy(greeting + 12, "NULL", 4);
  send_all(fd, greeting, sizeof greeting);
  send_all(fd, kReady, sizeof kReady - 1);
  for (int i = 0; i < kMessages; ++i) send_all(fd, kMessage, sizeof kMessage - 1);
}

int main(void) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_stats stats = DISTAG_STATS_INIT;
  char directory[] = "/tmp/distag-garbage-XXXXXX", rendezvous[64], cleanup[64];
  if (!CHECK(mkdtemp(directory) != NULL)) return 1;
  snprintf(rendezvous, sizeof rendezvous, "file://%s", directory);
  options.world_size = 1;
  options.name = "w0";
  options.rendezvous = rendezvous;
  options.bind = "tcp://127.0.0.1:0";
  options.on_log = on_log;
  CHECK_OK(distag_worker_create(&options, &w, &err));
  CHECK_OK(distag_worker_register(w, "nothing", nothing, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(w, 20 * DISTAG_SECOND, &err));

  const int port = port_of_worker();
  const int no_zmtp = dial(port);
  send_all(no_zmtp, "GET / HTTP/1.0\r\n\r\n", 18);
  const int fd = dial(port);
  send_garbage(fd);
  do {
    CHECK_OK(distag_worker_get_stats(w, &stats, &err));
  } while (stats.messages_refused < kMessages && check_failures == 0);
  CHECK_INT(stats.messages_refused, kMessages);
  CHECK_INT(stats.peers_lost, 0);
  CHECK_OK(distag_call(w, NULL, "w0", "nothing", NULL, 0, NULL, NULL, &err));
  close(fd);
  close(no_zmtp);
  CHECK_OK(distag_worker_shutdown(w, 20 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(w);
  CHECK(atomic_load(&logged) >= 1 && atomic_load(&logged) <= kMessages / 10);
  snprintf(cleanup, sizeof cleanup, "rm -r '%s'", directory);
  CHECK_INT(system(cleanup), 0);
  return check_end();
}
