/* A host that loads a plugin, trains in it, serves calls of 1 MiB in frames, and unloads it, many times.
 *
 * usage: host times|sockets|sodium|two PLUGIN LIBRARY...
 *   times  100 times, by turns with RTLD_DEEPBIND and without
 *   sockets 20 times likewise, over sockets of libzmq (DISTAG_LANE=0)
 *   sodium once with RTLD_DEEPBIND, in a host that has functions named as those of libsodium and FlatBuffers
 * (HOST_HAS_SODIUM) two    two plugins, each with a copy of the library of its own, at a time */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

#include "../left.h"
#include "plugin.h"

#ifdef HOST_HAS_SODIUM
/* Names of libsodium and of the C++ FlatBuffers, exported by the host, that must not be taken for the real ones. */
int sodium_calls;
int sodium_init(void);
int sodium_init(void) { return ++sodium_calls, -1; }
void sodium_memzero(void* bytes, size_t size);
void sodium_memzero(void* bytes, size_t size) { ++sodium_calls, (void)bytes, (void)size; }
void randombytes_buf(void* bytes, size_t size);
void randombytes_buf(void* bytes, size_t size) { ++sodium_calls, (void)bytes, (void)size; }
char other_flatbuffers[3] __asm__("_ZN11flatbuffers13ClassicLocale9instance_E");
#else
static int sodium_calls;
#endif

typedef struct loaded {
  void* handle;
  const plugin_functions* functions;
} loaded;

static void need(int holds, const char* what) {
  if (holds) return;
  printf("failed: %s\n", what);
  exit(1);
}

static loaded load(const char* plugin, const char* library, int flags) {
  loaded made;
  made.handle = dlopen(plugin, RTLD_NOW | RTLD_LOCAL | flags);
  if (made.handle == NULL) printf("%s\n", dlerror());
  need(made.handle != NULL, "dlopen");
  made.functions = dlsym(made.handle, "plugin");
  need(made.functions != NULL && made.functions->begin(library, RTLD_LOCAL | flags) == 0, "begin");
  return made;
}

static void train(const loaded* made) {
  double gradient[3] = {0};
  need(made->functions->train(gradient) == 0, "train");
  need(gradient[0] == 2 && gradient[1] == 4 && gradient[2] == 6, "the gradients");
}

static void run_frames(const loaded* made, frames* all) {
  for (int state = 1; state == 1; sched_yield()) {
    begin_frame(all);
    state = made->functions->frame();
    end_frame(all);
    need(state >= 0, "frame");
  }
  end_round(all);
}

/* Threads of this process that libzmq made. */
static int count_threads_of_libzmq(void) {
  DIR* open = opendir("/proc/self/task");
  struct dirent* entry;
  int count = 0;
  while (open != NULL && (entry = readdir(open)) != NULL) {
    char path[64], name[64] = "";
    FILE* file;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", entry->d_name);
    file = fopen(path, "r");
    if (file == NULL) continue;
    count += fgets(name, sizeof name, file) != NULL && strncmp(name, "ZMQ", 3) == 0;
    fclose(file);
  }
  if (open != NULL) closedir(open);
  return count;
}

static void unload(const loaded* made) {
  need(made->functions->end() == 0, "end");
  need(dlclose(made->handle) == 0, "dlclose");
}

int main(int argc, char** argv) {
  const left before = count_left();
  frames all = {0};
  need(argc >= 4, "usage: host times|sockets|sodium|two PLUGIN LIBRARY...");
  if (strcmp(argv[1], "two") == 0) {
    const loaded first = load(argv[2], argv[3], 0), second = load(argv[4], argv[5], 0);
    need(count_mappings("copy1/libdistag") > 0 && count_mappings("copy2/libdistag") > 0, "two copies");
    train(&first);
    train(&second);
    unload(&first);
    train(&second);
    unload(&second);
    check_left(before, "plugin.so");
    return puts("two copies: ok"), 0;
  }
  const int is_over_sockets = strcmp(argv[1], "sockets") == 0;
  const int times = strcmp(argv[1], "sodium") == 0 ? 1 : is_over_sockets ? 20 : 100;
  for (int i = 0; i < times; ++i) {
    const loaded made = load(argv[2], argv[3], times == 1 || i % 2 == 1 ? RTLD_DEEPBIND : 0);
    train(&made);
    need((count_threads_of_libzmq() > 0) == is_over_sockets, "threads of libzmq");
    if (i % 10 == 0) run_frames(&made, &all);
    unload(&made);
    check_left(before, "plugin.so");
  }
  if (times > 1 && !is_over_sockets)
    check_frames(&all); /* one round does not tell a long frame from one that the machine made long */
  need(sodium_calls == 0, "a function of the host was taken for one of libsodium");
  printf("%s: ok, %d frames, the longest %.2f ms\n", argv[1], all.count, all.longest);
  return 0;
}
