/* A host whose locale writes numbers with a comma, as most of Europe does: texts of the library do not follow it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

/* The library calls this localeconv: the locale of the process has a comma, and a thread has the locale that it has
 * chosen. So the machine need not have such a locale. */
__attribute__((visibility("default"))) struct lconv *localeconv(void) {
  struct lconv *(*real)(void) = NULL;
  *(void **)&real = dlsym(RTLD_NEXT, "localeconv");
  if (uselocale((locale_t)0) != LC_GLOBAL_LOCALE) return real();
  static char comma[] = ",";
  static _Thread_local struct lconv with_comma;
  with_comma = *real();
  with_comma.decimal_point = comma;
  return &with_comma;
}

static void check_loaded(distag_value *loaded) {
  distag_error err = DISTAG_ERROR_INIT;
  double rate = 0, small = 0;
  CHECK_OK(distag_value_get_float64(distag_value_get_entry(loaded, "rate"), &rate, &err));
  CHECK_OK(distag_value_get_float64(distag_value_get_entry(loaded, "small"), &small, &err));
  CHECK(rate == 1234.5 && small == -2.5e-7);
}

static void checkpoints_with_numbers_come_back(distag_worker *worker) {
  char folder[] = "/tmp/distag_locales_XXXXXX", inner[64], remove_all[96];
  const char *keys[] = {"rate", "small"};
  const int64_t one = 1;
  const int32_t self = 0;
  distag_value *items[2] = {NULL, NULL}, *map = NULL, *loaded = NULL;
  distag_mesh *mesh = NULL;
  distag_error err = DISTAG_ERROR_INIT;
  CHECK(mkdtemp(folder) != NULL);
  snprintf(inner, sizeof inner, "%s/saved", folder);
  CHECK_OK(distag_value_create_float64(1234.5, &items[0], &err));
  CHECK_OK(distag_value_create_float64(-2.5e-7, &items[1], &err));
  CHECK_OK(distag_value_create_map(keys, items, 2, &map, &err));
  CHECK_OK(distag_mesh_create(worker, &self, 1, &one, NULL, 1, NULL, &mesh, &err));
  CHECK_OK(distag_checkpoint_save(mesh, inner, map, 0, &err));
  CHECK_OK(distag_checkpoint_load(mesh, inner, NULL, 0, &loaded, &err));
  check_loaded(loaded);
  distag_value_release(loaded);
  CHECK_OK(distag_checkpoint_load(NULL, inner, NULL, 0, &loaded, &err));
  check_loaded(loaded);
  distag_value_release(loaded);
  /* The host's locale is as it was. */
  CHECK(uselocale((locale_t)0) == LC_GLOBAL_LOCALE && strcmp(localeconv()->decimal_point, ",") == 0);
  distag_mesh_release(mesh);
  distag_value_release(map);
  for (int i = 0; i < 2; ++i) distag_value_release(items[i]);
  snprintf(remove_all, sizeof remove_all, "rm -rf '%s'", folder);
  CHECK(system(remove_all) == 0);
}

/* The call is open at its caller, too, whose report says its age with digits behind the point. */
static distag_status ask(void *user_data, distag_invocation *invocation, distag_error *call_err) {
  static char report[1 << 16];
  size_t size = 0;
  distag_error err = DISTAG_ERROR_INIT;
  (void)user_data, (void)call_err;
  CHECK_OK(distag_worker_copy_group_report(distag_invocation_get_worker(invocation), 120 * DISTAG_SECOND, report,
                                           sizeof report, &size, &err));
  CHECK(size < sizeof report && strstr(report, "\"age_ms\":") != NULL && strstr(report, "\"silent\":null") != NULL);
  return DISTAG_OK;
}

int main(void) {
  distag_worker *workers[2] = {NULL, NULL};
  distag_error err = DISTAG_ERROR_INIT;
  for (int i = 0; i < 2; ++i) {
    const distag_worker_options options = group_options(i, 2, "inproc://locales");
    CHECK_OK(distag_worker_create(&options, &workers[i], &err));
  }
  CHECK_OK(distag_worker_register(workers[0], "ask", ask, NULL, NULL, NULL, &err));
  if (group_start(workers, 2) != 0) return 1;
  checkpoints_with_numbers_come_back(workers[0]);
  CHECK_OK(distag_call(workers[1], NULL, "w0", "ask", NULL, 0, NULL, NULL, &err));
  CHECK_INT(group_shutdown(workers, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
  return check_end();
}
