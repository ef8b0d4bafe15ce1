"""Runs programs in C as if each thread of theirs were cancelled (pthread_cancel) within every call that it makes, and
checks that together they call every function of the header. A library in front of distag's, made of bindings/api.json,
lets a point of cancellation act within calls and nowhere else: a program whose thread ends there fails.
usage: check_cancels.py API_JSON INCLUDE CC PROGRAM..."""
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HEAD = r"""#define _GNU_SOURCE
#include <distag.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread int is_cancelled;

static void say(int fd, const char *name) {
  char line[128] = {0};
  strncat(strncat(line, name, 100), "\n", 2);
  if (write(fd, line, strlen(line)) < 0) _exit(71);
}
static void enter(int *was_called, const char *name, int *before) {
  const int number = errno;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, before);
  if (!__atomic_exchange_n(was_called, 1, __ATOMIC_RELAXED)) {
    const int fd = open(getenv("DISTAG_CANCELS"), O_WRONLY | O_APPEND | O_CLOEXEC);
    say(fd, name);
    close(fd);
  }
  if (!is_cancelled) {
    is_cancelled = 1;
    pthread_cancel(pthread_self());
  }
  errno = number;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
}
static void end(void *name) {
  say(2, "a thread was cancelled within");
  say(2, name);
  _exit(70);
}
"""
FUNCTION = """{type} {name}({parameters}) {{
  static {type} (*next)({parameters});
  static int was_called;
  int before;
  {result}
  if (next == NULL) next = dlsym(RTLD_NEXT, "{name}");
  enter(&was_called, "{name}", &before);
  pthread_cleanup_push(end, "{name}");
  {assign}next({arguments});
  {planted}
  pthread_cleanup_pop(0);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  {give}
}}
"""


def wrapped(function, planted):
    kind, parameters = function["returns"]["type"], function["parameters"]
    is_void = kind == "void"
    return FUNCTION.format(
        type=kind, name=function["name"], result="" if is_void else f"{kind} result;",
        parameters=", ".join(f"{each['type']} {each['name']}" for each in parameters) or "void",
        arguments=", ".join(each["name"] for each in parameters), assign="" if is_void else "result = ",
        give="" if is_void else "return result;",
        planted="pthread_testcancel();" if function["name"] == planted else "")


def front(functions, planted, folder, include, compiler):
    """A library in front of distag's, in which that function has a point of cancellation."""
    source, library = (os.path.join(folder, planted + end) for end in (".c", ".so"))
    with open(source, "w", encoding="utf-8") as file:
        file.write(HEAD + "".join(wrapped(each, planted) for each in functions))
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-I", include, "-o", library, source], check=True)
    return library


def main(description, include, compiler, programs):
    with open(description, encoding="utf-8") as file:
        functions = json.load(file)["functions"]
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        called = os.path.join(folder, "called")
        open(called, "w", encoding="utf-8").close()

        def run(program, library, **options):
            environment = dict(os.environ, LD_PRELOAD=library, DISTAG_CANCELS=called)
            return subprocess.run([program], env=environment, check=False, **options).returncode

        planted = front(functions, "distag_tensor_release", folder, include, compiler)
        if run(programs[0], planted, stderr=subprocess.DEVNULL) != 70:
            failed.append(f"{programs[0]}: a planted point of cancellation is not seen")
        library = front(functions, "none", folder, include, compiler)
        with ThreadPoolExecutor(2) as pool:
            codes = pool.map(lambda program: run(program, library), programs)
            failed += [f"{program}: {code}" for program, code in zip(programs, codes) if code]
        with open(called, encoding="utf-8") as file:
            left = {each["name"] for each in functions} - set(file.read().split())
    failed += [f"{name}: none of the programs calls it" for name in sorted(left)]
    print("\n".join(failed) or f"{len(functions)} functions, {len(programs)} programs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], sys.argv[4:]))
