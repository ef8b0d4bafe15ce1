/* A round of every function that needs no worker. */
#ifndef CAPI_SUPPORT_LOCAL_ROUND_H
#define CAPI_SUPPORT_LOCAL_ROUND_H

#include <distag.h>

/* Host data given to distag with a destroy function, and destroyed: equal once nothing holds any. */
int local_round_given(void);
int local_round_destroyed(void);

/* 0 if each answered as it should; otherwise the wrong answers are printed. Any thread, several at once. */
int local_round(uint64_t seed);

#endif /* CAPI_SUPPORT_LOCAL_ROUND_H */
