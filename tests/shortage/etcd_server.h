/* A real etcd process for the scenarios that meet there. */
#ifndef SHORTAGE_ETCD_SERVER_H
#define SHORTAGE_ETCD_SERVER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts it, and returns once it serves. 0: this machine has no etcd, or it does not start. */
int etcd_server_start(void);
void etcd_server_stop(void);

/* Loads libcurl for this process and initialises it, as the first request to etcd does else. */
void etcd_server_load_client(void);

/* The address of a group below `prefix`, which begins with a slash. */
void etcd_server_write_uri(const char *prefix, char *uri, size_t size);
/* How many keys there are below `prefix`; -1: it does not answer. */
long etcd_server_count_keys(const char *prefix);

#ifdef __cplusplus
}
#endif

#endif /* SHORTAGE_ETCD_SERVER_H */
