//go:build cgo

#define _GNU_SOURCE /* dladdr */
#include "loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_TEXT(number) #number
#define TEXT(number) NUMBER_TEXT(number)
#define SONAME "libdistag.so." TEXT(DISTAG_ABI_MAJOR)

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static const distag_api* table; /* of a library that fits */
static char refusal[480];       /* empty until a library was looked for */

/* The end of a long path or reason, so that an error has room for the text after it; begins with a whole character. */
static const char* shortened(const char* text) {
  const size_t length = strlen(text);
  if (length <= 200) return text;
  text += length - 200;
  while ((*text & 0xc0) == 0x80) ++text; /* in the middle of a UTF-8 character */
  return text;
}

static void judge(const distag_api* found, const char* found_version, size_t needed, const char* version) {
  Dl_info place = {0};
  if (found != NULL && found->struct_size >= needed) {
    __atomic_store_n(&table, found, __ATOMIC_RELEASE);
    return;
  }
  dladdr(found_version, &place); /* the text lies in the library */
  snprintf(refusal, sizeof refusal,
           "%s is version %s, and this program needs version %s with ABI %d or a later one: install that library, "
           "or build with an older package",
           place.dli_fname != NULL ? shortened(place.dli_fname) : "libdistag", found_version, version,
           DISTAG_ABI_MAJOR);
}

#ifdef DISTAG_GO_LOAD
static int read_head(const char* path, unsigned char* head) {
  FILE* file = fopen(path, "rbe");
  const size_t found = file != NULL ? fread(head, 1, 20, file) : 0;
  if (file != NULL) fclose(file);
  return found == 20 && memcmp(head, ELFMAG, SELFMAG) == 0;
}

/* The loader says "No such file" of a library for another processor. */
static int is_for_another_processor(const char* path, char* reason, size_t size) {
  unsigned char found[20], own[20];
  if (!read_head(path, found) || !read_head("/proc/self/exe", own)) return 0;
  if (found[EI_CLASS] == own[EI_CLASS] && memcmp(found + 18, own + 18, 2) == 0) return 0;
  snprintf(reason, size, "%s is for another processor: ELF machine %d of %d bits, not %d of %d bits", shortened(path),
           found[18] | found[19] << 8, found[EI_CLASS] * 32, own[18] | own[19] << 8, own[EI_CLASS] * 32);
  return 1;
}

static void load(size_t needed, const char* version) {
  const char* named = getenv("DISTAG_LIBRARY");
  const int is_named = named != NULL && named[0] != '\0';
  const char* path = is_named ? named : SONAME;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const char* (*get_version)(void);
  const distag_api* (*get_api)(uint32_t);
  char reason[300];

  if (library == NULL) {
    if (!is_for_another_processor(path, reason, sizeof reason))
      snprintf(reason, sizeof reason, "%s", shortened(dlerror()));
    snprintf(refusal, sizeof refusal, "%s (%s); this program needs version %s",
             is_named ? "DISTAG_LIBRARY cannot be loaded"
                      : "libdistag is not found: install it, or name its file in DISTAG_LIBRARY",
             reason, version);
    return;
  }
  *(void**)&get_version = dlsym(library, "distag_get_version");
  *(void**)&get_api = dlsym(library, "distag_get_api");
  if (get_version == NULL || get_api == NULL) {
    snprintf(refusal, sizeof refusal, "%s is no libdistag: name its file in DISTAG_LIBRARY", shortened(path));
    return;
  }
  judge(get_api(DISTAG_ABI_MAJOR), get_version(), needed, version);
}

const distag_api* distag_go_table(void) { return __atomic_load_n(&table, __ATOMIC_ACQUIRE); }

distag_status distag_go_refused(distag_error* err) {
  if (err == NULL) return DISTAG_E_UNSUPPORTED;
  err->code = DISTAG_E_UNSUPPORTED;
  err->origin_rank = -1;
  err->flags = 0;
  snprintf(err->message, sizeof err->message, "%s", refusal);
  return DISTAG_E_UNSUPPORTED;
}
#else
static void load(size_t needed, const char* version) {
  judge(distag_get_api(DISTAG_ABI_MAJOR), distag_get_version(), needed, version);
}
#endif

const char* distag_go_check_library(size_t needed, const char* version) {
  pthread_mutex_lock(&gate);
  if (table == NULL && refusal[0] == '\0') load(needed, version);
  const char* said = table != NULL ? NULL : refusal;
  pthread_mutex_unlock(&gate);
  return said;
}
