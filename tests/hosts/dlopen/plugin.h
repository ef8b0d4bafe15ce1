/* The table that a host finds in a plugin by dlsym("plugin"). */
#ifndef DISTAG_TESTS_HOSTS_DLOPEN_PLUGIN_H
#define DISTAG_TESTS_HOSTS_DLOPEN_PLUGIN_H

typedef struct plugin_functions {
  /* 0: began, with the library of this path, loaded with these flags of dlopen besides RTLD_NOW. */
  int (*begin)(const char* library, int flags);
  int (*train)(double gradient[3]); /* 0: d sum(x * x) / dx at 1, 2, 3, by two workers */
  int (*frame)(void);               /* serves calls of 1 MiB; 1: goes on, 0: done, -1: failed */
  int (*end)(void);                 /* 0: nothing is left of the library */
} plugin_functions;

#endif
