#pragma once

#include <memory>
#include <string>

#include "group/rendezvous.h"

namespace distag {

// "tcp://host:port": rank 0 listens there, over the transport that the workers use, and the others dial it until their
// deadline. Each repeats JOIN every half second; rank 0 answers ROSTER with the missing ranks, all members, or an
// error. Rank 0 serves as long as it lives, so that a late worker learns that the group is complete. Throws
// INVALID_ARGUMENT for an address with port 0.
std::unique_ptr<Rendezvous> make_tcp_rendezvous(const std::string& uri, Loop& loop, Transport& transport, Log& log);

}  // namespace distag
