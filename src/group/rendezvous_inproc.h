#pragma once

#include <memory>
#include <string>

#include "group/rendezvous.h"

namespace distag {

// "inproc://name": workers of one process meet by a name. The process keeps a group only while it has members.
std::unique_ptr<Rendezvous> make_inproc_rendezvous(const std::string& uri, Loop& loop, Log& log);

}  // namespace distag
