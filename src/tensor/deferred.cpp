#include "tensor/deferred.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/executor.h"
#include "base/future.h"
#include "base/process_state.h"
#include "tensor/value.h"

namespace distag {

// The state while a thread makes the elements.
struct DeferredStorage::Making {
  explicit Making(const void* thread) : maker(thread) {}
  const void* const maker;
  Future<Unit> end;
};

namespace {

// Counts of the process, like those of handles.
std::atomic<uint64_t> g_tensors{0};
std::atomic<uint64_t> g_bytes_made_here{0};
std::atomic<uint64_t> g_bytes_made_whole{0};

// An address that identifies the calling thread.
const void* this_thread() {
  thread_local char here = 0;
  return &here;
}

// Threads that wait for makers of elements, of any storages. Process-wide, as few things are: host code that makes the
// elements of one tensor may ask for those of another, so that waits may form a circle.
struct Wait {
  const void* thread;
  const void* maker;
  const Completion* end;
  Wait* next;
};
struct Waits {
  Wait* first = nullptr;
};
ProcessState<Waits> g_waits;
using WaitsAccess = ProcessState<Waits>::Access;

// The maker that a thread waits for, or nullptr. A wait that is over, but not removed yet, does not count.
const void* awaited_by(const WaitsAccess& waits, const void* thread) {
  for (const Wait* wait = waits->first; wait != nullptr; wait = wait->next) {
    if (wait->thread == thread && !wait->end->is_done()) return wait->maker;
  }
  return nullptr;
}

// The calling thread waits for a maker. Throws INVALID_STATE if the maker already waits for this thread.
class WaitScope {
 public:
  WaitScope(const void* maker, const Completion& end) : wait_{this_thread(), maker, &end, nullptr} {
    const WaitsAccess waits(g_waits);
    for (const void* thread = maker; thread != nullptr; thread = awaited_by(waits, thread)) {
      if (thread != wait_.thread || end.is_done()) continue;
      fail(Status::kInvalidState,
           "the elements of a deferred tensor are needed by the source that makes them: a source reads no tensor whose "
           "source waits for it");
    }
    wait_.next = waits->first;
    waits->first = &wait_;
  }
  ~WaitScope() {
    const WaitsAccess waits(g_waits);
    Wait** place = &waits->first;
    while (*place != nullptr && *place != &wait_) place = &(*place)->next;
    if (*place != nullptr) *place = wait_.next;  // in a forked child the list lacks the waits of its parent
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  Wait wait_;
};

void fill_box(const Initialiser& initialiser, size_t item_size, const Dims& offset, const Dims& extent,
              std::byte* out) {
  const int64_t count = element_count(extent);
  if (count == 0) return;
  const int64_t rows = extent.empty() ? 1 : extent[0];
  const size_t row_bytes = static_cast<size_t>(count / rows) * item_size;
  const auto most = static_cast<int64_t>(std::max<size_t>(kMostDeferredPart / row_bytes, 1));
  for (int64_t row = 0; row < rows; row += most) {
    Dims from = offset;
    Dims part = extent;
    if (!extent.empty()) {
      from[0] += row;
      part[0] = std::min(most, rows - row);
    }
    initialiser.fill(from, part, out + static_cast<size_t>(row) * row_bytes);
  }
}

}  // namespace

Tensor make_box(const Initialiser& initialiser, Dtype dtype, const Dims& offset, const Dims& extent) {
  Tensor box = Tensor::empty(dtype, extent);
  fill_box(initialiser, dtype_size(dtype), offset, extent, box.mutable_data());
  g_bytes_made_here.fetch_add(box.byte_size(), std::memory_order_relaxed);
  return box;
}

void make_elements(const Value& value) {
  value.for_each_tensor([](const Tensor& tensor) {
    if (tensor && tensor.shard_slot() == nullptr) tensor.storage().make_elements();
  });
}

DeferredCounts deferred_counts() {
  return {g_tensors.load(std::memory_order_relaxed), g_bytes_made_here.load(std::memory_order_relaxed),
          g_bytes_made_whole.load(std::memory_order_relaxed)};
}

void Storage::make_deferred() { static_cast<DeferredStorage*>(this)->make(); }
bool Storage::is_made_deferred() const { return static_cast<const DeferredStorage*>(this)->is_made(); }

DeferredStorage::DeferredStorage(Dtype dtype, const Dims& shape, std::shared_ptr<const Initialiser> initialiser)
    : Storage(BufferRef(), Kind::kDeferred), dtype_(dtype), shape_(shape), initialiser_(std::move(initialiser)) {
  g_tensors.fetch_add(1, std::memory_order_relaxed);
}

DeferredStorage::~DeferredStorage() {
  if (!is_made()) g_tensors.fetch_sub(1, std::memory_order_relaxed);
}

std::shared_ptr<const Initialiser> DeferredStorage::initialiser() const {
  MutexLock lock(mutex_);
  return initialiser_;
}

// The initialiser is dropped after the lock is released: its destructor may run host code.
void DeferredStorage::give_up() {
  std::shared_ptr<const Initialiser> gone;
  MutexLock lock(mutex_);
  if (is_made()) return;
  gone.swap(initialiser_);
  is_made_.store(true, std::memory_order_release);
  g_tensors.fetch_sub(1, std::memory_order_relaxed);
}

// Ends the making of elements, whether it failed or not.
class DeferredStorage::MakingEnd {
 public:
  MakingEnd(DeferredStorage& storage, std::shared_ptr<Making> making) : storage_(storage), making_(std::move(making)) {}
  ~MakingEnd() {
    {
      MutexLock lock(storage_.mutex_);
      storage_.making_.reset();
    }
    making_->end.complete({});
  }
  MakingEnd(const MakingEnd&) = delete;
  MakingEnd& operator=(const MakingEnd&) = delete;

 private:
  DeferredStorage& storage_;
  const std::shared_ptr<Making> making_;
};

// The initialiser for the thread that is to make the elements, with the Making that it has to end. nullptr if another
// thread makes them: `making` is that thread's; or if they are made: `making` is null.
std::shared_ptr<const Initialiser> DeferredStorage::begin(std::shared_ptr<Making>& making) {
  MutexLock lock(mutex_);
  making.reset();
  if (is_made()) return nullptr;
  if (making_ != nullptr) {
    making = making_;
    return nullptr;
  }
  making_ = std::make_shared<Making>(this_thread());
  making = making_;
  return initialiser_;
}

void DeferredStorage::make() {
  std::shared_ptr<Making> making;
  while (!is_made()) {
    const std::shared_ptr<const Initialiser> initialiser = begin(making);
    if (initialiser != nullptr) {
      const MakingEnd end(*this, making);
      fill(*initialiser);
    } else if (making != nullptr) {
      const WaitScope scope(making->maker, making->end);
      wait_and_run_nothing(making->end, kForever);
    }
  }
}

void DeferredStorage::fill(const Initialiser& initialiser) {
  const auto size = static_cast<size_t>(element_count(shape_)) * dtype_size(dtype_);
  BufferRef made = Buffer::allocate(size);
  Dims origin;
  origin.resize(shape_.size());
  fill_box(initialiser, dtype_size(dtype_), origin, shape_, made->mutable_data());
  g_bytes_made_whole.fetch_add(size, std::memory_order_relaxed);
  BufferRef gone;  // freed outside of the lock
  {
    const std::lock_guard<Storage> lock(*this);
    if (!buffer()) {
      exchange_buffer(std::move(made));
    } else {
      gone = std::move(made);
    }
  }
  give_up();
}

}  // namespace distag
