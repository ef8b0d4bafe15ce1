/* A library that is older than the assembly needs, or of another major version (with -DMAJOR). */
#include <stddef.h>
#include <stdint.h>

static uint32_t table[2] = {16, 0};

const void* distag_get_api(uint32_t abi_major) {
#ifdef MAJOR
  (void)abi_major;
  return NULL;
#else
  return abi_major == 0 ? table : NULL;
#endif
}

const char* distag_get_version(void) {
#ifdef MAJOR
  return table[0] ? "1.0.0" : "";
#else
  return "0.2.9";
#endif
}
