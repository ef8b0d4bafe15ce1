/* A source of batches for loaders: row r of the data is {2 r, 2 r + 1} in "x", an int64, and r in "y", a double. In
 * modes without rows batch k is rows 4 k to 4 k + 3, and the data has `batches` of them. */
#ifndef CAPI_SUPPORT_FEED_H
#define CAPI_SUPPORT_FEED_H

#include <distag.h>
#include <pthread.h>

enum { kFedRows = 4 };

typedef struct feed {
  int64_t batches;      /* of modes without rows; -1: no end */
  int64_t first, count; /* of the rows of each batch that are given there; 0, 0: all */
  int64_t fails_at;     /* the number of a batch; -1: none. Likewise these: */
  int64_t widens_at;    /* its "x" has a column more */
  int64_t cuts_at;      /* its first row is missing */
  int64_t blocks_at;    /* it waits for feed_open() */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int is_open;       /* under the mutex, as is what follows */
  int blocked;       /* calls that wait */
  int running, most; /* calls, and the most at once */
  int calls, destroyed;
  int calls_after; /* calls that began after destroy */
  int64_t *asked;  /* nullable: how often each row was asked for */
} feed;

void feed_init(feed *data);
void feed_end(feed *data);
/* Releases blocked calls. */
void feed_open(feed *data);
/* Waits until a call is blocked. */
void feed_await_blocked(feed *data);
/* Waits until destroy has run. */
void feed_await_destroyed(feed *data);
int feed_get_destroyed(feed *data);

distag_status feed_source(void *user_data, uint64_t number, const int64_t *rows, size_t row_count,
                          distag_value **out_batch, distag_error *err);
void feed_destroy(void *user_data);

#endif /* CAPI_SUPPORT_FEED_H */
