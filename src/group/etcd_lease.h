#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/loop.h"
#include "group/etcd_client.h"

namespace distag {

// The lease of a worker at etcd; when it runs out, etcd removes the worker's entry. Its time counts from before it was
// asked for, so etcd never drops it earlier than this object says. Only one call at a time; `then` runs after the
// answer, whether there is a lease or not. The owner is on the loop, and outlives the calls or drops the client.
class EtcdLease {
 public:
  explicit EtcdLease(const Loop& loop);

  int64_t id() const { return id_; }  // 0: none
  Nanos time() const { return time_; }
  Nanos renewal() const { return renewal_; }
  bool is_due() const { return loop_.now() >= renewal_; }

  void take(EtcdClient& client, std::function<void()> then);
  void renew(EtcdClient& client, std::function<void()> then);
  // The lease has run out.
  void lose() { id_ = 0; }
  void give_up(EtcdClient& client);

 private:
  const Loop& loop_;
  int64_t id_ = 0;
  Nanos renewal_ = 0;
  Nanos time_;
};

}  // namespace distag
