// The place that a launcher gave to this process.

#include <cstdlib>
#include <cstring>

#include "capi/struct_check.h"
#include "group/launchers.h"
#include "group/pmix_board.h"

using namespace distag;
using namespace distag::capi;

distag_status distag_get_environment(distag_environment* out_environment, distag_error* err) {
  return guard(__func__, err, [=] {
    const distag_environment unknown = DISTAG_ENVIRONMENT_INIT;
    if (is_readable(out_environment, sizeof unknown)) fill_struct(out_environment, unknown);
    check_filled_struct(out_environment, sizeof unknown, "distag_environment");
    const LaunchPlace place =
        read_place([](const char* name) -> const char* { return std::getenv(name); }, [] { return ask_pmix().place; });
    distag_environment told = unknown;
    told.rank = place.rank;
    told.world_size = place.world_size;
    told.local_rank = place.local_rank;
    told.local_size = place.local_size;
    told.node = place.node;
    told.node_count = place.node_count;
    told.restart = place.restart;
    std::strncpy(told.launcher, place.launcher, sizeof told.launcher - 1);
    fill_struct(out_environment, told);
  });
}
