#pragma once

#include <memory>
#include <string>

#include "group/rendezvous.h"

namespace distag {

// "tcp://host:port": rank 0 listens there, over the transport that the workers use, and the others dial it until their
// deadline. Each says JOIN, again every half second; rank 0 answers ROSTER: who is missing, all members, or why not.
// Rank 0 goes on answering for as long as it lives, so that whoever comes late hears that the group is complete.
// Throws INVALID_ARGUMENT for an address without a port that all can know.
std::unique_ptr<Rendezvous> make_tcp_rendezvous(const std::string& uri, Loop& loop, Transport& transport, Log& log);

}  // namespace distag
