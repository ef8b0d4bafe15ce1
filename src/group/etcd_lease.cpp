#include "group/etcd_lease.h"

#include <string>

#include "group/etcd_messages.h"

namespace distag {
namespace {

constexpr int64_t kLeaseSeconds = 5;

}  // namespace

EtcdLease::EtcdLease(const Loop& loop) : loop_(loop), time_(kLeaseSeconds * kSecond) {}

void EtcdLease::take(EtcdClient& client, std::function<void()> then) {
  client.call("/v3/lease/grant", etcd::grant(kLeaseSeconds),
              [this, begun = loop_.now(), then = std::move(then)](const std::string& body) -> Task {
                return [this, begun, then, lease = etcd::read_lease(body)] {
                  id_ = lease.id;
                  time_ = lease.seconds * kSecond;
                  renewal_ = begun + time_ / 3;
                  then();
                };
              });
}

void EtcdLease::renew(EtcdClient& client, std::function<void()> then) {
  client.call("/v3/lease/keepalive", etcd::keep_alive(id_),
              [this, begun = loop_.now(), then = std::move(then)](const std::string& body) -> Task {
                return [this, begun, then, is_alive = etcd::read_is_alive(body)] {
                  if (!is_alive) id_ = 0;
                  renewal_ = begun + time_ / 3;
                  then();
                };
              });
}

void EtcdLease::give_up(EtcdClient& client) { client.say("/v3/lease/revoke", etcd::revoke(std::exchange(id_, 0))); }

}  // namespace distag
