/* Stack sizes for new threads of this process, those of libraries included: so large that there is no room for any, or
 * plain ones. Needs _GNU_SOURCE. */
#ifndef CAPI_SUPPORT_STACKS_H
#define CAPI_SUPPORT_STACKS_H

#include <pthread.h>
#include <stddef.h>

#include "capi/check.h"

static const size_t kNoRoomForAStack = (size_t)1 << 47, kPlainStack = (size_t)1 << 20;

static inline void set_stack_size(size_t size) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  CHECK_INT(pthread_attr_setstacksize(&attributes, size), 0);
  CHECK_INT(pthread_setattr_default_np(&attributes), 0);
  pthread_attr_destroy(&attributes);
}

#endif /* CAPI_SUPPORT_STACKS_H */
