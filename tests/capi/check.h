/* Checks for programs in C: each prints file, line and what it saw; check_end() gives the program's result. */
#ifndef CAPI_CHECK_H
#define CAPI_CHECK_H

#include <distag.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int check_failures;

static inline int check_true(int ok, const char *file, int line, const char *text) {
  if (!ok) {
    ++check_failures;
    fprintf(stderr, "%s:%d: %s\n", file, line, text);
  }
  return ok;
}

static inline int check_int(int64_t actual, int64_t expected, const char *file, int line, const char *text) {
  if (actual != expected) {
    ++check_failures;
    fprintf(stderr, "%s:%d: %s is %" PRId64 ", not %" PRId64 "\n", file, line, text, actual, expected);
  }
  return actual == expected;
}

static inline int check_near(double actual, double expected, const char *file, int line, const char *text) {
  const int ok = fabs(actual - expected) <= 1e-5 * (1 + fabs(expected));
  if (!ok) {
    ++check_failures;
    fprintf(stderr, "%s:%d: %s is %.9g, not %.9g\n", file, line, text, actual, expected);
  }
  return ok;
}

static inline int check_text(const char *actual, const char *expected, const char *file, int line, const char *text) {
  const int ok = actual != NULL && strcmp(actual, expected) == 0;
  if (!ok) {
    ++check_failures;
    fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", file, line, text, actual == NULL ? "(NULL)" : actual,
            expected);
  }
  return ok;
}

static inline int check_status(distag_status actual, distag_status expected, const distag_error *err, const char *file,
                               int line, const char *text) {
  if (actual != expected) {
    ++check_failures;
    fprintf(stderr, "%s:%d: %s is %s (%s), not %s\n", file, line, text, distag_status_get_name(actual),
            err == NULL || err->code == DISTAG_OK ? "" : err->message, distag_status_get_name(expected));
  }
  return actual == expected;
}

/* Checks that a call failed as it has to: its status, and a word of its message. */
static inline void check_fails(distag_status actual, distag_status expected, const distag_error *err, const char *word,
                               const char *file, int line, const char *text) {
  if (!check_status(actual, expected, err, file, line, text)) return;
  if (err->code != expected || strstr(err->message, word) == NULL) {
    ++check_failures;
    fprintf(stderr, "%s:%d: %s: code %d, message \"%s\" does not say \"%s\"\n", file, line, text, (int)err->code,
            err->message, word);
  }
}

#define CHECK(condition) check_true((condition) ? 1 : 0, __FILE__, __LINE__, #condition)
#define CHECK_INT(actual, expected) check_int((int64_t)(actual), (int64_t)(expected), __FILE__, __LINE__, #actual)
#define CHECK_NEAR(actual, expected) check_near(actual, expected, __FILE__, __LINE__, #actual)
#define CHECK_TEXT(actual, expected) check_text(actual, expected, __FILE__, __LINE__, #actual)
/* `call` has to be given &err, which is a distag_error err at the place of the check. */
#define CHECK_OK(call) (err.code = DISTAG_OK, check_status(call, DISTAG_OK, &err, __FILE__, __LINE__, #call))
#define CHECK_FAILS(call, status, word) \
  (err.code = DISTAG_OK, check_fails(call, status, &err, word, __FILE__, __LINE__, #call))

static inline int check_end(void) {
  CHECK_INT(distag_get_handle_count(), 0);
  if (check_failures != 0) fprintf(stderr, "%d checks failed\n", check_failures);
  return check_failures == 0 ? 0 : 1;
}

#endif /* CAPI_CHECK_H */
