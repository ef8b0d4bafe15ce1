/* A group that runs, looked at through one member and at the sockets of its workers, on good days and bad ones. */
#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kGuests = 64, kSilent = 100, kTextBytes = 1 << 20, kFewDescriptors = 24 };

static distag_error err = DISTAG_ERROR_INIT;
static char base[] = "/tmp/distag-test-XXXXXX";
static char folder[128];
static char text[kTextBytes];
static int go_on[2]; /* what holds the functions that hang */

static distag_status hold(void *user_data, distag_invocation *invocation, distag_error *told) {
  char byte;
  (void)user_data, (void)invocation, (void)told;
  return read(go_on[0], &byte, 1) < 0;
}

/* ---- at the sockets ---- */

/* The number of sockets; `path` is that of one of them. */
static int find_sockets(char *path, size_t capacity) {
  int count = 0;
  DIR *listing = opendir(folder);
  if (listing == NULL) return 0;
  for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    ++count;
    if (path != NULL) snprintf(path, capacity, "%s/%s", folder, entry->d_name);
  }
  closedir(listing);
  return count;
}

static int dial(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const struct timeval patience = {20, 0};
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  CHECK_INT(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
  return fd;
}

static void say(int fd, const char *words) { CHECK_INT(send(fd, words, strlen(words), MSG_NOSIGNAL), strlen(words)); }

/* All that comes until the end, which has to come. */
static const char *hear(int fd) {
  size_t size = 0;
  ssize_t more;
  while ((more = recv(fd, text + size, sizeof text - 1 - size, 0)) > 0) size += (size_t)more;
  CHECK_INT(more, 0);
  text[size] = '\0';
  close(fd);
  return text;
}

static const char *ask(const char *path, const char *question) {
  const int fd = dial(path);
  say(fd, question);
  return hear(fd);
}

static int has(const char *part) {
  if (strstr(text, part) != NULL) return 1;
  fprintf(stderr, "no %s in %s\n", part, text);
  return 0;
}

static distag_worker *begin_alone(uint32_t executor) {
  distag_worker *worker = NULL;
  distag_worker_options options = group_options(0, 1, "inproc://looked-at");
  options.executor = executor;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "hold", hold, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  return worker;
}

static void end(distag_worker *worker) {
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
}

static void a_socket_of_its_user(void) {
  char path[512];
  struct stat found;
  distag_worker *worker = begin_alone(DISTAG_EXECUTOR_POOL);
  CHECK_INT(find_sockets(path, sizeof path), 1);
  CHECK_INT(stat(folder, &found), 0);
  CHECK_INT(found.st_mode & 0777, 0700);
  ask(path, "look\n");
  CHECK(has("{\"worker\":{\"name\":\"w0\",\"rank\":0,"));
  CHECK(has("\"state\":\"started\""));
  ask(path, "group 500\n");
  CHECK(has("\"members\":[{\"name\":\"w0\""));
  end(worker);
  CHECK_INT(access(folder, F_OK), -1);
}

static void guests_who_misbehave(void) {
  char path[512], question[200];
  int silent[kSilent];
  distag_worker *worker = begin_alone(DISTAG_EXECUTOR_POOL);
  CHECK_INT(find_sockets(path, sizeof path), 1);
  static const char *const kUnknown[] = {"\n",           "report\n",
                                         "group\n",      "group \n",
                                         "group -1\n",   "group x\n",
                                         "group 1 2\n",  "group 99999999999999999999\n",
                                         "look\nlook\n", "GET / HTTP/1.1\r\n\r\n"};
  for (size_t i = 0; i < sizeof kUnknown / sizeof *kUnknown; ++i) CHECK_TEXT(ask(path, kUnknown[i]), "");
  memset(question, 'x', sizeof question);
  const int talker = dial(path); /* it may be disconnected with input unread */
  CHECK(send(talker, question, sizeof question, MSG_NOSIGNAL) > 0);
  while (recv(talker, text, sizeof text, 0) > 0) continue;
  close(talker);
  const int slow = dial(path);
  say(slow, "lo");
  for (int i = 0; i < kSilent; ++i) silent[i] = dial(path);
  say(slow, "ok\n");
  hear(slow);
  CHECK(has("\"name\":\"w0\""));
  const int gone = dial(path);
  say(gone, "look\n");
  close(gone);
  ask(path, "look\n"); /* once the silent ones before it were hung up on */
  CHECK(has("\"name\":\"w0\""));
  for (int i = 0; i < kSilent; ++i) CHECK_TEXT(hear(silent[i]), "");
  end(worker);
}

static void many_at_once(void) {
  char path[512];
  int guests[kGuests];
  distag_worker *worker = begin_alone(DISTAG_EXECUTOR_POOL);
  CHECK_INT(find_sockets(path, sizeof path), 1);
  for (int i = 0; i < kGuests; ++i) {
    guests[i] = dial(path);
    say(guests[i], i % 2 == 0 ? "look\n" : "group 1000\n");
  }
  for (int i = 0; i < kGuests; ++i) {
    hear(guests[i]);
    CHECK(has("\"name\":\"w0\""));
  }
  /* If a worker ends meanwhile, each guest gets an answer or the end. */
  for (int i = 0; i < kGuests; ++i) {
    guests[i] = dial(path);
    say(guests[i], "look\n");
  }
  end(worker);
  for (int i = 0; i < kGuests; ++i) {
    while (recv(guests[i], text, sizeof text, 0) > 0) continue;
    close(guests[i]);
  }
}

/* No thread of the host runs anything, or all of them hang. */
static void while_host_code_hangs(uint32_t executor) {
  char path[512];
  distag_future *call = NULL;
  distag_worker *worker = begin_alone(executor);
  CHECK_INT(find_sockets(path, sizeof path), 1);
  CHECK_OK(distag_call_async(worker, NULL, "w0", "hold", NULL, 0, NULL, &call, &err));
  const char *const wanted = executor == DISTAG_EXECUTOR_HOST ? "\"state\":\"waiting\"" : "\"state\":\"running\"";
  do ask(path, "look\n");
  while (strstr(text, wanted) == NULL);
  CHECK(has(executor == DISTAG_EXECUTOR_HOST ? "\"executor\":\"host\",\"tasks_waiting\":1,\"in_task\":false"
                                             : "\"executor\":\"pool\""));
  CHECK(has("\"made_here\":true,\"function\":\"hold\""));
  CHECK_INT(write(go_on[1], "x", 1), 1);
  CHECK_OK(distag_future_wait(call, 120 * DISTAG_SECOND, &err));
  distag_future_release(call);
  end(worker);
}

/* ---- bad days ---- */

static int run_child(int (*run)(void)) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    check_failures = 0;
    alarm(300);
    _exit(run());
  }
  CHECK_INT(waitpid(child, &status, 0), child);
  return status;
}

static int leave_all(void) { return 0; }

static int have_one_too(void) {
  char path[512];
  distag_worker *worker = begin_alone(DISTAG_EXECUTOR_POOL);
  CHECK_INT(find_sockets(path, sizeof path), 2);
  end(worker);
  CHECK_INT(find_sockets(path, sizeof path), 1);
  return check_failures != 0;
}

static void a_forked_child_has_none_of_it(void) {
  char path[512];
  distag_worker *worker = begin_alone(DISTAG_EXECUTOR_POOL);
  CHECK_INT(run_child(leave_all), 0);
  CHECK_INT(run_child(have_one_too), 0);
  CHECK_INT(find_sockets(path, sizeof path), 1);
  ask(path, "look\n");
  CHECK(has("\"name\":\"w0\""));
  end(worker);
}

static int be_killed(void) {
  begin_alone(DISTAG_EXECUTOR_POOL);
  return check_failures == 0 ? raise(SIGKILL) : 1;
}

static void the_next_one_clears_what_the_killed_left(void) {
  CHECK_INT(run_child(be_killed), SIGKILL);
  CHECK_INT(find_sockets(NULL, 0), 1);
  distag_worker *worker = begin_alone(DISTAG_EXECUTOR_POOL);
  CHECK_INT(find_sockets(NULL, 0), 1);
  end(worker);
  CHECK_INT(access(folder, F_OK), -1);
}

static int be_short_of_descriptors(void) {
  struct rlimit few;
  getrlimit(RLIMIT_NOFILE, &few);
  few.rlim_cur = kFewDescriptors;
  CHECK_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
  distag_worker *worker = begin_alone(DISTAG_EXECUTOR_POOL);
  CHECK_INT(find_sockets(NULL, 0), 0);
  end(worker);
  return check_failures != 0;
}

static void without_one_all_goes_on(void) {
  setenv("DISTAG_PS", "0", 1);
  distag_worker *worker = begin_alone(DISTAG_EXECUTOR_POOL);
  CHECK_INT(access(folder, F_OK), -1);
  end(worker);
  unsetenv("DISTAG_PS");
  CHECK_INT(run_child(be_short_of_descriptors), 0);
  CHECK_INT(mkdir(folder, 0755), 0); /* not private: the next place is taken */
  CHECK_INT(chmod(folder, 0755), 0);
  worker = begin_alone(DISTAG_EXECUTOR_POOL);
  CHECK_INT(find_sockets(NULL, 0), 0);
  end(worker);
  CHECK_INT(rmdir(folder), 0);
}

/* ---- through one member ---- */

static void copy_group(distag_worker *worker, int64_t timeout) {
  size_t size = 0;
  CHECK_OK(distag_worker_copy_group_report(worker, timeout, text, sizeof text, &size, &err));
  CHECK_INT(strlen(text), size);
}

static void a_group_through_one_member(void) {
  char few[8] = "xxxxxxx";
  size_t size = 1;
  distag_worker *workers[3] = {NULL};
  distag_future *call = NULL;
  for (int32_t i = 0; i < 3; ++i) {
    distag_worker_options options = group_options(i, 3, "inproc://group");
    CHECK_OK(distag_worker_create(&options, &workers[i], &err));
    CHECK_OK(distag_worker_register(workers[i], "hold", hold, NULL, NULL, NULL, &err));
  }
  CHECK_FAILS(distag_worker_copy_group_report(workers[0], DISTAG_SECOND, few, sizeof few, &size, &err),
              DISTAG_E_INVALID_STATE, "not started");
  CHECK_TEXT(few, "");
  CHECK_INT(size, 0);
  CHECK_INT(group_start(workers, 3), 0);
  CHECK_OK(distag_call_async(workers[0], NULL, "w1", "hold", NULL, 0, NULL, &call, &err));
  do copy_group(workers[2], 120 * DISTAG_SECOND);
  while (strstr(text, "\"state\":\"running\"") == NULL);
  CHECK(strncmp(text, "{\"asked\":\"w2\",\"members\":[{\"name\":\"w0\",\"rank\":0,", 47) == 0);
  CHECK(has("{\"name\":\"w1\",\"rank\":1,") && has("{\"name\":\"w2\",\"rank\":2,"));
  CHECK(strstr(text, "\"report\":null") == NULL);
  CHECK(strstr(text, "distag.look") == NULL);
  static char report[1 << 16];
  CHECK_OK(distag_worker_copy_report(workers[2], report, sizeof report, &size, &err));
  CHECK(strstr(report, "\"last\": [") != NULL && strstr(report, "distag.look") == NULL);
  CHECK_OK(distag_worker_copy_report(workers[0], report, sizeof report, &size, &err));
  CHECK(strstr(report, "distag.look") == NULL);
  copy_group(workers[2], 0);
  CHECK(has("\"silent\":\"it was not waited for\",\"report\":null"));
  CHECK_OK(distag_worker_copy_group_report(workers[0], DISTAG_SECOND, NULL, 0, &size, &err));
  CHECK(size > 1000);
  CHECK_OK(distag_worker_copy_group_report(workers[0], DISTAG_FOREVER, few, sizeof few, &size, &err));
  CHECK_TEXT(few, "{\"asked");
  CHECK_FAILS(distag_worker_copy_group_report(workers[0], -2, few, sizeof few, &size, &err), DISTAG_E_INVALID_ARGUMENT,
              "timeout_ns");
  CHECK_FAILS(distag_worker_copy_group_report(workers[0], 0, few, sizeof few, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "out_size");
  CHECK_FAILS(distag_worker_copy_group_report(NULL, 0, few, sizeof few, &size, &err), DISTAG_E_INVALID_ARGUMENT,
              "worker");
  CHECK_INT(write(go_on[1], "x", 1), 1);
  CHECK_OK(distag_future_wait(call, 120 * DISTAG_SECOND, &err));
  distag_future_release(call);
  CHECK_INT(group_shutdown(workers, 3), 0);
  CHECK_FAILS(distag_worker_copy_group_report(workers[0], 0, few, sizeof few, &size, &err), DISTAG_E_INVALID_STATE,
              "shut down");
  for (int i = 0; i < 3; ++i) distag_worker_release(workers[i]);
}

int main(void) {
  CHECK(mkdtemp(base) != NULL);
  CHECK_INT(pipe(go_on), 0);
  setenv("TMPDIR", base, 1);
  unsetenv("XDG_RUNTIME_DIR");
  snprintf(folder, sizeof folder, "%s/distag-ps.%u", base, (unsigned)geteuid());
  a_socket_of_its_user();
  guests_who_misbehave();
  many_at_once();
  while_host_code_hangs(DISTAG_EXECUTOR_POOL);
  while_host_code_hangs(DISTAG_EXECUTOR_HOST);
  a_forked_child_has_none_of_it();
  the_next_one_clears_what_the_killed_left();
  without_one_all_goes_on();
  a_group_through_one_member();
  CHECK_INT(rmdir(base), 0);
  return check_failures != 0;
}
