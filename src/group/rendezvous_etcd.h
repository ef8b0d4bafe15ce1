#pragma once

#include <memory>
#include <string>

#include "group/etcd_settings.h"
#include "group/http_client.h"
#include "group/rendezvous.h"

namespace distag {

// "etcd://host:port[,host:port...]/prefix": workers meet in an etcd, which outlives any of them (etcd_messages.h has
// the keys). Each member has a lease of 5 s that it renews; it comes in by a transaction that holds only for the record
// of the group that it has read, so that ranks, names and generations are given once.
//
// A place is free when its holder has left, when a member has told here that it lost it, or when its lease has run out;
// until then who wants it waits, and is refused once the lease was renewed for so long that its holder lives. A member
// whose entry is gone although it lives (it was stopped, or others lost it) makes it again, unless another one has
// taken its place. A group without members is followed by the next one. The last one to leave takes the record away.
//
// While no majority of the servers answers, no worker can join; members go on, and try again. The values are those of
// others: each is checked.
std::unique_ptr<Rendezvous> make_etcd_rendezvous(const std::string& uri, EtcdSettings settings, Loop& loop,
                                                 Transport& transport, Log& log, HttpClient& http);

}  // namespace distag
