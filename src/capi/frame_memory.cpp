// The host's allocator, as memory for the tensors that arrive.

#include <memory>

#include "base/host_code.h"
#include "base/process.h"
#include "capi/struct_check.h"
#include "capi/worker.h"
#include "transport/transport.h"

namespace distag::capi {
namespace {

constexpr size_t kAlignment = 64;

// Blocks hold this object, so destroy runs after the last of them came back, on that thread.
class HostMemory final : public FrameMemory, public std::enable_shared_from_this<HostMemory> {
 public:
  explicit HostMemory(const distag_allocator& allocator) : allocator_(allocator) {}
  ~HostMemory() override {
    if (allocator_.destroy == nullptr || generation_ != process_generation()) return;
    call_host([this] { allocator_.destroy(allocator_.user_data); });
  }

  void check() const {
    read_struct(&allocator_, "distag_allocator");
    need_zero(allocator_.reserved, "distag_allocator.reserved");
    if (allocator_.allocate == nullptr) refuse_null("distag_allocator.allocate");
    if (allocator_.deallocate == nullptr) refuse_null("distag_allocator.deallocate");
  }

  std::shared_ptr<std::byte> allocate(size_t size) override {
    void* memory = call_host([&] { return allocator_.allocate(allocator_.user_data, size, kAlignment); });
    if (memory == nullptr) fail(Status::kOutOfMemory, "the allocator of the host has no {} bytes", size);
    std::shared_ptr<std::byte> block(static_cast<std::byte*>(memory),
                                     [self = shared_from_this(), size](std::byte* gone) {
                                       const distag_allocator& host = self->allocator_;
                                       call_host([&] { host.deallocate(host.user_data, gone, size, kAlignment); });
                                     });
    if (reinterpret_cast<uintptr_t>(memory) % kAlignment != 0) {
      fail(Status::kInvalidArgument, "the allocator of the host gave memory that is not aligned to {} bytes",
           kAlignment);
    }
    return block;
  }

 private:
  const distag_allocator allocator_;
  const uint32_t generation_ = process_generation();
};

}  // namespace

std::shared_ptr<FrameMemory> make_frame_memory(const distag_allocator* allocator) {
  if (allocator == nullptr) return nullptr;
  if (!is_readable(allocator, sizeof(distag_allocator))) read_struct(allocator, "distag_allocator");
  std::shared_ptr<HostMemory> memory;
  try {
    memory = std::make_shared<HostMemory>(*allocator);
  } catch (...) {
    if (allocator->destroy != nullptr) call_host([&] { allocator->destroy(allocator->user_data); });
    throw;
  }
  check_struct(allocator, sizeof(distag_allocator), "distag_allocator");
  memory->check();
  return memory;
}

}  // namespace distag::capi
