/* The library that a program with the tag distag_load takes at run time. */
#ifndef DISTAG_GO_LOADER_H
#define DISTAG_GO_LOADER_H

#include <distag.h>

/* The problem of the library, in one sentence; NULL: it fits. Linked or loaded, the library is checked once. */
const char* distag_go_check_library(size_t needed, const char* version);

#ifdef DISTAG_GO_LOAD
/* The functions of the library; NULL without one. */
const distag_api* distag_go_table(void);

/* The answer of a function without a library. */
distag_status distag_go_refused(distag_error* err);
#endif

#endif
