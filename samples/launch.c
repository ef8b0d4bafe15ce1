/* Runs N processes of a program as one group, and ends all of them if one fails.
 *
 *   cc launch.c -o launch && ./launch 3 ./program ARGUMENTS...
 *
 * Each process finds in its environment the variables of "env://", the default rendezvous of a worker. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A port of this machine on which nobody listens; 0 if there is none. */
static int find_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(probe, (struct sockaddr *)&address, size) == 0) getsockname(probe, (struct sockaddr *)&address, &size);
  close(probe);
  return ntohs(address.sin_port);
}

int main(int argc, char **argv) {
  const int count = argc > 2 ? atoi(argv[1]) : 0;
  const pid_t launcher = getpid();
  char port[16], rank_text[16];
  int failed = 0, status = 0;

  if (count < 1) return fprintf(stderr, "usage: %s N PROGRAM [ARGUMENTS...]\n", argv[0]), 2;
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  snprintf(port, sizeof port, "%d", find_port());
  setenv("MASTER_PORT", port, 1);
  setenv("WORLD_SIZE", argv[1], 1);
  for (int rank = 0; rank < count && !failed; ++rank) {
    const pid_t child = fork();
    if (child < 0) perror("fork"), failed = 1;
    if (child != 0) continue;
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    setenv("RANK", rank_text, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever way the launcher ends, Ctrl-C included, the process ends with it */
    if (getppid() != launcher) return 1;
    execvp(argv[2], argv + 2);
    return perror(argv[2]), 127;
  }
  while (!failed && wait(&status) > 0) failed = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return failed; /* the processes that are left are killed as the launcher ends */
}
