/* A start that fails says what was found at the place to meet, and where: nothing, a port that is silent, a program
 * that speaks another protocol, an invalid address, a group with another key. A port that hangs up until a worker
 * listens behind it is dialled until then. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"

static distag_error err = DISTAG_ERROR_INIT;

typedef struct place {
  int fd;
  int port;
} place;

/* The system takes connections there; no process reads them. */
static place listen_silently(void) {
  place made = {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), 0};
  struct sockaddr_in address;
  socklen_t size = sizeof address;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(bind(made.fd, (struct sockaddr *)&address, sizeof address) == 0);
  CHECK(listen(made.fd, 64) == 0);
  CHECK(getsockname(made.fd, (struct sockaddr *)&address, &size) == 0);
  made.port = ntohs(address.sin_port);
  return made;
}

/* Sends the text to each client, and hangs up. */
static pid_t serve(place at, const char *text) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    char bytes[64];
    const int fd = accept(at.fd, NULL, NULL);
    if (fd < 0) _exit(0);
    if (text != NULL && (recv(fd, bytes, sizeof bytes, 0) < 0 || send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)) {
      _exit(1);
    }
    if (text != NULL) shutdown(fd, SHUT_WR);
    while (text != NULL && recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
    close(fd);
  }
}

/* Begins to greet each client, and goes no further. */
static pid_t greet(place at) {
  static const unsigned char signature[] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f};
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int fd; (fd = accept(at.fd, NULL, NULL)) >= 0;) {
    if (send(fd, signature, sizeof signature, MSG_NOSIGNAL) < 0) _exit(1);
  }
  _exit(0);
}

/* Copies bytes between the two, in both directions, until one of them ends. */
static void pass_on(int client, int server) {
  struct pollfd ends[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
  char bytes[4096];
  while (poll(ends, 2, -1) > 0) {
    for (int i = 0; i < 2; ++i) {
      if (ends[i].revents == 0) continue;
      const ssize_t got = recv(ends[i].fd, bytes, sizeof bytes, 0);
      if (got <= 0 || send(ends[1 - i].fd, bytes, (size_t)got, MSG_NOSIGNAL) != got) return;
    }
  }
}

/* Forwards to another port, as ssh and kubectl do: hangs up at once if nothing listens there, and says so by a byte. */
static pid_t forward(place at, int port, int told) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGCHLD, SIG_IGN);
  for (int client; (client = accept(at.fd, NULL, NULL)) >= 0; close(client)) {
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    if (connect(server, (struct sockaddr *)&address, sizeof address) != 0) {
      if (write(told, "", 1) != 1) _exit(1);
    } else if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      pass_on(client, server);
      _exit(0);
    }
    close(server);
  }
  _exit(0);
}

/* The timeout grows each time: a machine that stops may end the start before it has found out the reason in `words`. */
static void check_start(distag_worker_options options, distag_status status, const char *words) {
  int is_told = 0;
  for (int64_t timeout = 3 * DISTAG_SECOND / 2; !is_told; timeout *= 2) {
    distag_worker *worker = NULL;
    CHECK_OK(distag_worker_create(&options, &worker, &err));
    const distag_status seen = distag_worker_start(worker, timeout, &err);
    is_told = timeout > 20 * DISTAG_SECOND || (seen == status && strstr(err.message, words) != NULL);
    if (is_told) check_fails(seen, status, &err, words, __FILE__, __LINE__, "distag_worker_start");
    distag_worker_shutdown(worker, DISTAG_SECOND, NULL, NULL);
    distag_worker_release(worker);
  }
}

static distag_worker_options guest(const char *rendezvous) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.rank = 1;
  options.world_size = 2;
  options.rendezvous = rendezvous;
  return options;
}

static void meet_at(place at, const char *words) {
  char uri[64];
  snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", at.port);
  check_start(guest(uri), DISTAG_E_DISCONNECTED, words);
  CHECK(strstr(err.message, uri) != NULL);
}

static void others_at_the_port(void) {
  const place silent = listen_silently(), web = listen_silently(), shut = listen_silently(), gone = listen_silently(),
              slow = listen_silently();
  close(gone.fd); /* before a child has it too */
  const pid_t children[] = {serve(web, "HTTP/1.1 400 Bad Request\r\n\r\n"), serve(shut, NULL), greet(slow)};
  meet_at(gone, "no process listens there");
  meet_at(silent, "takes connections and says nothing");
  meet_at(web, "another program listens there: it speaks no ZMTP: it begins with \"HTTP/1.1 400 Bad\"");
  meet_at(shut, "closes the connection at once");
  meet_at(slow, "began a handshake and did not end it");
  for (size_t i = 0; i < sizeof children / sizeof *children; ++i) {
    CHECK(kill(children[i], SIGKILL) == 0);
    CHECK(waitpid(children[i], NULL, 0) == children[i]);
  }
  close(silent.fd), close(web.fd), close(shut.fd), close(slow.fd);
}

static void end_child(pid_t child) {
  CHECK(kill(child, SIGKILL) == 0);
  CHECK(waitpid(child, NULL, 0) == child);
}

static distag_worker *start(distag_worker_options options) {
  distag_worker *worker = NULL;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  return worker;
}

static distag_worker_options host(const char *rendezvous) {
  distag_worker_options options = guest(rendezvous);
  options.rank = 0;
  return options;
}

/* Rank 0 begins once the port in front of it has hung up on rank 1 many times. */
static void a_host_that_comes_late(void) {
  enum { kHangUps = 20 };
  const place port = listen_silently(), behind = listen_silently();
  int told[2], status = -1;
  char uri[64], uri_behind[64], word;
  close(behind.fd);
  CHECK(pipe(told) == 0);
  const pid_t forwarder = forward(port, behind.port, told[1]);
  snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", port.port);
  snprintf(uri_behind, sizeof uri_behind, "tcp://127.0.0.1:%d", behind.port);
  const pid_t member = fork();
  if (member == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    distag_worker *worker = start(guest(uri));
    CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
    distag_worker_release(worker);
    _exit(check_failures != 0);
  }
  for (int i = 0; i < kHangUps; ++i) CHECK(read(told[0], &word, 1) == 1);
  distag_worker *worker = start(host(uri_behind));
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  CHECK(waitpid(member, &status, 0) == member);
  CHECK_INT(status, 0);
  end_child(forwarder);
  close(port.fd), close(told[0]), close(told[1]);
}

/* The handshake says that the key is another one, behind such a port as well. */
static void a_group_with_another_key(void) {
  const place port = listen_silently(), behind = listen_silently();
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  char uri[64], uri_behind[64];
  int told[2];
  close(behind.fd);
  CHECK(pipe(told) == 0);
  snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", port.port);
  snprintf(uri_behind, sizeof uri_behind, "tcp://127.0.0.1:%d", behind.port);
  const pid_t forwarder = forward(port, behind.port, told[1]);
  const pid_t other = fork();
  if (other == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    distag_worker_options options = host(uri_behind);
    security.group_key = "the key of the group that is there";
    options.security = &security;
    start(options); /* waits for rank 1 */
    _exit(1);
  }
  const char *const places[] = {uri_behind, uri};
  for (int i = 0; i < 2; ++i) {
    distag_worker_options options = guest(places[i]);
    security.group_key = "the key of another group than that";
    options.security = &security;
    check_start(options, DISTAG_E_DENIED, "does not let this one in: their group keys differ");
  }
  end_child(other);
  end_child(forwarder);
  close(port.fd), close(told[0]), close(told[1]);
}

static void addresses_that_are_none(void) {
  static const char *const cases[][2] = {
      {"tcp://host:70000", "rendezvous: port \"70000\" of \"tcp://host:70000\" is not a number"},
      {"tcp://:29500", "rendezvous: \"tcp://:29500\" has no host: give one, as in tcp://10.0.0.7:29500"},
      {"tcp://10.0.0.7", "rendezvous: \"tcp://10.0.0.7\" has no port: give one, as in tcp://10.0.0.7:29500"},
      {"tcp://127.0.0.1:0", "port 0 would be another one each time"},
      {"inproc://", "has no name: give one, as in inproc://job"},
      {"file://", "give an absolute path, as in file:///tmp/job"},
      {"etcd://", "give it as etcd://host:port"},
      {"ipc:///tmp/x", "is invalid: give env://, tcp://host:port, file:///dir, inproc://name, etcd://host:port/prefix"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    check_start(guest(cases[i][0]), DISTAG_E_INVALID_ARGUMENT, cases[i][1]);
  }
}

/* The addresses to listen at and to be dialled at are checked before others could hear of them. */
static void addresses_of_the_worker(void) {
  char folder[] = "/tmp/distag_wordsXXXXXX", uri[64];
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  CHECK(mkdtemp(folder) != NULL);
  snprintf(uri, sizeof uri, "file://%s/meet", folder);
  options.world_size = 1;
  options.rendezvous = uri;
  options.bind = "tcp://127.0.0.1";
  check_start(options, DISTAG_E_INVALID_ARGUMENT, "bind: \"tcp://127.0.0.1\" has no port");
  options.bind = NULL;
  options.advertise = "tcp://10.0.0.7:70000";
  check_start(options, DISTAG_E_INVALID_ARGUMENT, "advertise: port \"70000\"");
  options.advertise = "10.0.0.7:29500";
  check_start(options, DISTAG_E_INVALID_ARGUMENT, "advertise: \"10.0.0.7:29500\" is no endpoint");
  CHECK(rmdir(folder) == 0); /* no worker has got to the rendezvous */
}

/* If nothing can be written, a group with a key meets over tcp, if its workers are told to listen there: in an empty
 * root, which only root can make. */
static void nothing_to_write_to(void) {
  char folder[] = "/tmp/distag_wordsXXXXXX";
  const place at = listen_silently();
  close(at.fd);
  CHECK(mkdtemp(folder) != NULL);
  const pid_t child = fork();
  if (child == 0) {
    char uri[64];
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
    distag_worker *worker = NULL;
    if (chroot(folder) != 0 || chdir("/") != 0) _exit(77);
    unsetenv("XDG_RUNTIME_DIR"), unsetenv("TMPDIR");
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", at.port);
    security.group_key = "the key of a group that writes no file";
    options.world_size = 1;
    options.rendezvous = uri;
    options.security = &security;
    check_start(options, DISTAG_E_INVALID_STATE, "or take tcp instead: bind=\"tcp://127.0.0.1:0\"");
    options.bind = "tcp://127.0.0.1:0"; /* the remedy works */
    CHECK_OK(distag_worker_create(&options, &worker, &err));
    CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
    CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
    distag_worker_release(worker);
    _exit(check_failures != 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    printf("skipped: an empty root needs CAP_SYS_CHROOT\n");
  } else {
    CHECK_INT(status, 0);
  }
  CHECK(rmdir(folder) == 0);
}

int main(void) {
  nothing_to_write_to();
  addresses_that_are_none();
  addresses_of_the_worker();
  others_at_the_port();
  a_host_that_comes_late();
  a_group_with_another_key();
  return check_end();
}
