#include <distag.h>
#include <stdio.h>
#include <string.h>

/* The installed header and library are of one version. */
int main(void) {
  char version[32];
  snprintf(version, sizeof(version), "%d.%d.%d", DISTAG_VERSION_MAJOR, DISTAG_VERSION_MINOR, DISTAG_VERSION_PATCH);
  printf("header %s, library %s\n", version, distag_get_version());
  return strcmp(version, distag_get_version()) != 0;
}
