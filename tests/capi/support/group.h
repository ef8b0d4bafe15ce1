/* Workers of one group within this process. */
#ifndef CAPI_SUPPORT_GROUP_H
#define CAPI_SUPPORT_GROUP_H

#include <distag.h>

/* Options of member `rank` of `size` that meet at `rendezvous`; named "w0", "w1", ... */
distag_worker_options group_options(int32_t rank, int32_t size, const char *rendezvous);

/* The place where a group called `name` of this process meets: "inproc://name", or with DISTAG_TEST_SOCKETS, a folder,
 * a file there, so that its messages go over sockets. Valid until the next call on this thread. */
const char *group_place(const char *name);

/* Starts and shuts down all of them side by side. 0 if that succeeded; otherwise the failure is printed. */
int group_start(distag_worker *const *workers, size_t count);
int group_shutdown(distag_worker *const *workers, size_t count);

/* A function for workers: three times its argument, a tensor. */
distag_status group_triple(void *user_data, distag_invocation *invocation, distag_error *err);

#endif /* CAPI_SUPPORT_GROUP_H */
