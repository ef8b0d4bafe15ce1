#pragma once

#include <sodium.h>

#include "base/linked_function.h"
#include "transport/security.h"

namespace distag {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"  // attributes such as nonnull are no part of a template argument
// The functions of the libsodium that this library was linked with, whatever the host exports under the same names
// (NaCl has the same).
struct Sodium {
  LinkedFunction<decltype(::crypto_box_beforenm)> crypto_box_beforenm{"crypto_box_beforenm", &::crypto_box_beforenm};
  LinkedFunction<decltype(::crypto_box_detached_afternm)> crypto_box_detached_afternm{"crypto_box_detached_afternm",
                                                                                      &::crypto_box_detached_afternm};
  LinkedFunction<decltype(::crypto_box_easy)> crypto_box_easy{"crypto_box_easy", &::crypto_box_easy};
  LinkedFunction<decltype(::crypto_box_easy_afternm)> crypto_box_easy_afternm{"crypto_box_easy_afternm",
                                                                              &::crypto_box_easy_afternm};
  LinkedFunction<decltype(::crypto_box_open_easy)> crypto_box_open_easy{"crypto_box_open_easy",
                                                                        &::crypto_box_open_easy};
  LinkedFunction<decltype(::crypto_box_open_easy_afternm)> crypto_box_open_easy_afternm{
      "crypto_box_open_easy_afternm", &::crypto_box_open_easy_afternm};
  LinkedFunction<decltype(::crypto_box_seed_keypair)> crypto_box_seed_keypair{"crypto_box_seed_keypair",
                                                                              &::crypto_box_seed_keypair};
  LinkedFunction<decltype(::crypto_generichash)> crypto_generichash{"crypto_generichash", &::crypto_generichash};
  LinkedFunction<decltype(::crypto_scalarmult_base)> crypto_scalarmult_base{"crypto_scalarmult_base",
                                                                            &::crypto_scalarmult_base};
  LinkedFunction<decltype(::sodium_bin2hex)> sodium_bin2hex{"sodium_bin2hex", &::sodium_bin2hex};
  LinkedFunction<decltype(::sodium_init)> sodium_init{"sodium_init", &::sodium_init};
  LinkedFunction<decltype(::sodium_memcmp)> sodium_memcmp{"sodium_memcmp", &::sodium_memcmp};
  LinkedFunction<decltype(::sodium_memzero)> sodium_memzero{"sodium_memzero", &::sodium_memzero};
};
#pragma GCC diagnostic pop
extern constinit const Sodium sodium;

// Called before any function of libsodium. Throws UNSUPPORTED if there are no random numbers, or if functions give
// wrong results: libsodium calls its own functions by names that a host may export as well.
void start_sodium();

// Makes a new pair, from random numbers of the system.
void fill_with_key_pair(CurveKeyPair& pair);

void wipe(CurveKey& secret);

}  // namespace distag
