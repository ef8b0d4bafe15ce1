#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/loop.h"
#include "group/etcd_client.h"

namespace distag {

// The lease of a worker at etcd, with which its entry ends. Its time runs from before it was asked for, so etcd never
// drops it earlier than this says. One call of it at a time, after which `then` runs, whether there is a lease or not.
// What owns it is on the loop, and outlives the calls or has the client drop them.
class EtcdLease {
 public:
  explicit EtcdLease(const Loop& loop);

  int64_t id() const { return id_; }  // 0: none
  Nanos time() const { return time_; }
  Nanos renewal() const { return renewal_; }
  bool is_due() const { return loop_.now() >= renewal_; }

  void take(EtcdClient& client, std::function<void()> then);
  void renew(EtcdClient& client, std::function<void()> then);
  // It has run out.
  void lose() { id_ = 0; }
  void give_up(EtcdClient& client);

 private:
  const Loop& loop_;
  int64_t id_ = 0;
  Nanos renewal_ = 0;
  Nanos time_;
};

}  // namespace distag
