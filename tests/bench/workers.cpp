// The workers of rows between processes.
#include "bench/harness.h"

namespace bench {

Sockets make_sockets(Way way) {
  Sockets sockets;
  if (way == Way::kPrivate) return sockets;
  sockets.bind = "tcp://127.0.0.1:0";
  if (way == Way::kTcp) return sockets;
  distag_error error = DISTAG_ERROR_INIT;
  distag_key_pair keys = DISTAG_KEY_PAIR_INIT;
  distag_security_create_keys(&keys, &error);
  check(error, "keys");
  sockets.group_key = keys.secret_key;
  return sockets;
}

distag_worker* make_worker(const char* rendezvous, int32_t rank, int32_t size, const Sockets& sockets) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.rank = rank;
  options.world_size = size;
  options.rendezvous = rendezvous;
  if (!sockets.bind.empty()) {
    options.bind = sockets.bind.c_str();
    options.security = &security;
    if (sockets.group_key.empty()) {
      security.allow_insecure = 1;  // or else the key of the user would be taken
    } else {
      security.group_key = sockets.group_key.c_str();
    }
  }
  distag_worker* made = nullptr;
  distag_worker_create(&options, &made, &error);
  check(error, "a worker");
  return made;
}

}  // namespace bench
