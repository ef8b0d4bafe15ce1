/* A library that does not fit: older than needed; of another major version with -DMAJOR; newer with -DNEWER. Each
 * function may be called once: a program that is refused does not ask again. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static int asked[2];

const void* distag_get_api(uint32_t abi_major) {
  if (asked[0]++) abort();
#if defined(MAJOR)
  (void)abi_major;
  return NULL;
#elif defined(NEWER)
  static uint32_t table[1024] = {sizeof table, 0};
  return abi_major == 0 ? table : NULL;
#else
  static uint32_t table[2] = {16, 0};
  return abi_major == 0 ? table : NULL;
#endif
}

const char* distag_get_version(void) {
  if (asked[1]++) abort();
#if defined(MAJOR)
  return "1.0.0";
#elif defined(NEWER)
  return "0.9.0";
#else
  return "0.2.9";
#endif
}
