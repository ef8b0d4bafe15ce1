// DLPack: tensors shared with other libraries of the process.

#include "tensor/dlpack.h"

#include <optional>
#include <utility>

#include "base/host_callback.h"
#include "capi/value.h"

using namespace distag;
using namespace distag::capi;

namespace {

void check_flags(uint32_t flags) {
  need_known_bits(flags, DISTAG_DLPACK_COPY | DISTAG_DLPACK_SHARE, "flags");
  if (flags != (DISTAG_DLPACK_COPY | DISTAG_DLPACK_SHARE)) return;
  refuse(Status::kInvalidArgument, "flags ask for a copy and for sharing: give one of them");
}

// A handle goes with the exported tensor: it counts until the deleter has run.
template <typename Managed, typename Make>
void export_tensor(const Tensor& tensor, bool is_copy, Managed** out_managed, Make&& make) {
  auto held = Ref<distag_tensor>::take(make_tensor(is_copy ? tensor.private_clone() : tensor.snapshot()));
  const Tensor& values = held->tensor();
  // Not "= {}": in a template clang 14 forgets to destroy an argument that is made of braces (and with it the handle).
  *out_managed = make(values, [held = std::move(held)]() mutable {
    const NoCancel no_cancel;  // the consumer's thread
    held = Ref<distag_tensor>();
  });
}

template <typename Managed>
void run_deleter(void* given) {
  auto* managed = static_cast<Managed*>(given);
  if (managed->deleter != nullptr) managed->deleter(managed);
}

// The managed tensor of another library. It belongs to its giver until keep(); then its deleter runs with the last
// holder, where host code may.
template <typename Managed>
class Imported {
 public:
  explicit Imported(Managed& managed) : managed_(managed) {}
  void keep() { data_.emplace(&managed_, &run_deleter<Managed>); }

 private:
  Managed& managed_;
  std::optional<HostData> data_;
};

template <typename Managed>
void import_tensor(Managed& managed, distag_tensor** out_tensor) {
  auto owner = std::make_shared<Imported<Managed>>(managed);
  Tensor tensor = import_dlpack(managed.dl_tensor, [owner]() mutable { owner = nullptr; });
  if (tensor.dtype() == Dtype::kBool) {
    const Tensor flat = tensor.contiguous();
    check_bools(flat.data(), flat.byte_size(), flat.dtype());
  }
  *out_tensor = make_tensor(std::move(tensor));
  owner->keep();
}

}  // namespace

distag_status distag_tensor_export_dlpack(distag_tensor* tensor, uint32_t flags, DLManagedTensorVersioned** out_managed,
                                          distag_error* err) {
  clear(out_managed);
  return guard(__func__, err, [=] {
    const Tensor& live = need(tensor, "tensor").tensor();
    need_pointer(out_managed, "out_managed");
    check_flags(flags);
    const bool is_copy = flags == DISTAG_DLPACK_COPY;
    export_tensor(live, is_copy, out_managed, [is_copy](const Tensor& values, Task release) {
      return export_dlpack(values, is_copy, std::move(release));
    });
  });
}

distag_status distag_tensor_export_dlpack_legacy(distag_tensor* tensor, uint32_t flags, DLManagedTensor** out_managed,
                                                 distag_error* err) {
  clear(out_managed);
  return guard(__func__, err, [=] {
    const Tensor& live = need(tensor, "tensor").tensor();
    need_pointer(out_managed, "out_managed");
    check_flags(flags);
    // This format cannot tell the consumer that memory of another process is read-only.
    const bool is_copy = flags != DISTAG_DLPACK_SHARE || live.is_protected();
    export_tensor(live, is_copy, out_managed, export_dlpack_legacy);
  });
}

distag_status distag_tensor_import_dlpack(DLManagedTensorVersioned* managed, distag_tensor** out_tensor,
                                          distag_error* err) {
  clear(out_tensor);
  return guard(__func__, err, [=] {
    if (managed == nullptr) refuse_missing_handle("managed");
    need_pointer(out_tensor, "out_tensor");
    check_dlpack_version(managed->version);
    import_tensor(*managed, out_tensor);
  });
}

distag_status distag_tensor_import_dlpack_legacy(DLManagedTensor* managed, distag_tensor** out_tensor,
                                                 distag_error* err) {
  clear(out_tensor);
  return guard(__func__, err, [=] {
    if (managed == nullptr) refuse_missing_handle("managed");
    need_pointer(out_tensor, "out_tensor");
    import_tensor(*managed, out_tensor);
  });
}
