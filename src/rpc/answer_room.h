#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "base/task_queue.h"

namespace distag {

class IncomingCall;
struct GroupShared;
struct RpcShared;

// Counts the bytes of answers that one caller has not acknowledged, and holds back its requests while these are too
// many: "Credit" in schemas/calls.fbs. Shared with the answers. Any thread, unless it says otherwise.
class AnswerRoom final : public std::enable_shared_from_this<AnswerRoom> {
 public:
  AnswerRoom(std::weak_ptr<RpcShared> shared, uint64_t budget) : shared_(std::move(shared)), budget_(budget) {}

  // The bytes of one answer, from when it is made until it is acknowledged or can never be.
  class Share {
   public:
    Share() = default;
    Share(std::shared_ptr<AnswerRoom> room, uint64_t bytes) noexcept : room_(std::move(room)), bytes_(bytes) {
      room_->used_ += bytes;
    }
    Share(Share&& other) noexcept = default;
    Share& operator=(Share&& other) noexcept {
      std::swap(room_, other.room_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (room_ != nullptr) room_->give_back(bytes_);
    }

   private:
    std::shared_ptr<AnswerRoom> room_;
    uint64_t bytes_ = 0;
  };

  // Returns true if the call waits here; it goes on once there is room. Throws bad_alloc.
  bool keeps(const std::shared_ptr<IncomingCall>& call);
  // A call was not kept, so the next one may not have to wait either.
  void note_passed() noexcept {
    if (waiting_count_ != 0) let_in_soon();
  }
  // No call waits from now on. Returns those that waited.
  std::list<std::shared_ptr<IncomingCall>> close();

 private:
  bool is_full() const { return used_ >= budget_; }
  void give_back(uint64_t bytes) noexcept {
    used_ -= bytes;
    if (waiting_count_ != 0) let_in_soon();
  }
  void let_in_soon() noexcept;
  void let_in(const GroupShared& group);
  std::shared_ptr<IncomingCall> take_next();

  const std::weak_ptr<RpcShared> shared_;
  const uint64_t budget_;
  std::atomic<uint64_t> used_{0};
  std::atomic<size_t> waiting_count_{0};
  std::atomic<bool> is_posted_{false};  // place_ is in use
  TaskPlace place_;
  Mutex mutex_;
  std::list<std::shared_ptr<IncomingCall>> waiting_ GUARDED_BY(mutex_);
  bool is_closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace distag
