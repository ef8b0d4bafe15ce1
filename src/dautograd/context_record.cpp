#include "dautograd/context_record.h"

#include <utility>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"

namespace distag {
namespace {

using PreparedPasses = std::map<Id, std::shared_ptr<Future<Unit>>>;

Error no_verdict(const Id& pass, Nanos lease) {
  return Error(Status::kDeadline,
               fmt::format("gradients: pass {} of worker {:016x} has run here, and no verdict came within the lease of "
                           "{} ms; try again",
                           pass.counter, pass.maker, lease / kMillisecond));
}

// Waits for all of them together, for the time of one lease.
void await(const PreparedPasses& prepared, Nanos lease) {
  if (prepared.empty()) return;
  check_can_wait();
  auto all = Future<Unit>::make();
  auto open = std::make_shared<std::atomic<size_t>>(prepared.size());
  for (const auto& [pass, verdict] : prepared) {
    verdict->on_done([all, open] {
      if (--*open == 0) all->complete(Unit{});
    });
  }
  if (wait(*all, lease)) return;
  for (const auto& [pass, verdict] : prepared) {
    if (!verdict->is_done()) throw no_verdict(pass, lease);
  }
}

}  // namespace

void ContextRecord::check() const {
  MutexLock lock(mutex_);
  if (closed_) throw *closed_;
}

void ContextRecord::close(const Error& why) {
  PreparedPasses prepared;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = why;
    prepared.swap(prepared_);
    if (!prepared.empty() && !unknown_) unknown_ = why;
  }
  for (auto& [pass, verdict] : prepared) verdict->complete(Unit{});
}

void ContextRecord::close_anew(const Error& why) {
  MutexLock lock(mutex_);
  closed_ = why;
}

void ContextRecord::set_counts(size_t sends, size_t recvs) {
  MutexLock lock(mutex_);
  sends_ = static_cast<uint32_t>(sends);
  recvs_ = static_cast<uint32_t>(recvs);
}

void ContextRecord::add_known(int32_t rank) {
  MutexLock lock(mutex_);
  known_.insert(rank);
}

void ContextRecord::begin_pass() {
  MutexLock lock(mutex_);
  if (closed_) throw *closed_;
  ++passes_;
}

void ContextRecord::end_pass() {
  MutexLock lock(mutex_);
  --passes_;
}

ContextInfo ContextRecord::info() {
  check();
  return counts();
}

ContextInfo ContextRecord::counts() {
  ContextInfo info;
  info.gradient_count = static_cast<uint32_t>(gradients_.read()->entries.size());
  MutexLock lock(mutex_);
  info.send_count = sends_;
  info.recv_count = recvs_;
  info.known_count = static_cast<uint32_t>(known_.size());
  info.pass_count = passes_;
  return info;
}

std::vector<int32_t> ContextRecord::known_ranks() const {
  MutexLock lock(mutex_);
  if (closed_) throw *closed_;
  return {known_.begin(), known_.end()};
}

void ContextRecord::begin_prepared(const Id& pass) {
  MutexLock lock(mutex_);
  prepared_.emplace(pass, Future<Unit>::make());
}

void ContextRecord::commit(const Id& pass, autograd::GradientStore::Entries gradients) {
  gradients_.add(pass, std::move(gradients));
  end_prepared(pass);
}

void ContextRecord::forget(const Id& pass) { end_prepared(pass); }

void ContextRecord::lose_verdict(const Id& pass, const Error& why) {
  {
    MutexLock lock(mutex_);
    if (!unknown_) unknown_ = why;
  }
  end_prepared(pass);
}

void ContextRecord::end_prepared(const Id& pass) {
  std::shared_ptr<Future<Unit>> verdict;
  {
    MutexLock lock(mutex_);
    auto found = prepared_.find(pass);
    if (found == prepared_.end()) return;
    verdict = found->second;
    prepared_.erase(found);
  }
  verdict->complete(Unit{});
}

std::shared_ptr<const Gradients> ContextRecord::read(Nanos lease) { return read(lease, false); }

std::shared_ptr<const Gradients> ContextRecord::read_kept(Nanos lease) { return read(lease, true); }

std::shared_ptr<const Gradients> ContextRecord::read(Nanos lease, bool if_over) {
  PreparedPasses prepared;
  {
    MutexLock lock(mutex_);
    if (closed_ && !if_over) throw *closed_;
    prepared = prepared_;
  }
  await(prepared, lease);
  {
    MutexLock lock(mutex_);
    if (closed_ && !if_over) throw *closed_;
    if (unknown_) throw *unknown_;
  }
  return gradients_.read();
}

std::shared_ptr<Future<Value>> ContextRecord::settle() {
  PreparedPasses prepared;
  {
    MutexLock lock(mutex_);
    if (closed_) throw *closed_;
    prepared = prepared_;
  }
  auto settled = Future<Value>::make();
  settled->set_operation("context_settle");
  auto open = std::make_shared<std::atomic<size_t>>(prepared.size() + 1);
  const auto one_ended = [self = shared_from_this(), settled, open] {
    if (--*open == 0) self->end(*settled);
  };
  for (const auto& [pass, verdict] : prepared) verdict->on_done(one_ended);
  one_ended();
  return settled;
}

void ContextRecord::end(Future<Value>& settled) const {
  std::optional<Error> why;
  {
    MutexLock lock(mutex_);
    why = closed_ ? closed_ : unknown_;
  }
  if (why) {
    settled.fail(std::move(*why));
  } else {
    settled.complete(Value());
  }
}

Error ContextRecord::late(Nanos lease) const {
  MutexLock lock(mutex_);
  return no_verdict(prepared_.empty() ? Id{} : prepared_.begin()->first, lease);
}

void ContextRecord::scale(std::span<const uint64_t> leaves, double factor, uint64_t passes) {
  check();
  gradients_.scale(leaves, factor, passes);
}

}  // namespace distag
