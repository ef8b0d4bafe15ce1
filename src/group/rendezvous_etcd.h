#pragma once

#include <memory>
#include <string>

#include "group/etcd_settings.h"
#include "group/http_client.h"
#include "group/rendezvous.h"

namespace distag {

// "etcd://host:port[,host:port...]/prefix": workers meet in an etcd, which outlives them (etcd_messages.h has the
// keys). Each member renews a lease of 5 s. It joins by a transaction that requires the record of the group to be as it
// was read, so ranks, names and generations are unique.
//
// A place is free when its holder has left, when a member has reported its loss here, or when its lease has run
// out. Until then a worker that wants the place waits; it is refused once renewals show that the holder lives. A
// living member whose entry is gone (it was stopped, or others lost it) writes it again, unless another worker
// has its place. A group without members is replaced by the next one. The last member to leave removes the
// record.
//
// While no majority of the servers answers, no worker can join; members go on, and try again. Values that were read are
// checked.
std::unique_ptr<Rendezvous> make_etcd_rendezvous(const std::string& uri, EtcdSettings settings, Loop& loop,
                                                 Transport& transport, Log& log, HttpClient& http);

}  // namespace distag
