// Ops of the host's own.

#include <algorithm>
#include <memory>

#include "base/host_callback.h"
#include "base/host_code.h"
#include "capi/op_call.h"
#include "capi/struct_check.h"

using namespace distag;
using namespace distag::capi;

namespace {

// The callbacks of one application. The graph holds this for as long as a pass may need backward.
struct HostOp {
  std::string name;
  distag_custom_forward forward;
  distag_custom_backward backward;
  HostData data;
};

// Handles lent to a callback; NULL for an undefined tensor.
class LentTensors {
 public:
  explicit LentTensors(std::span<const Tensor> tensors)
      : lent_(std::make_unique<Lent<distag_tensor>[]>(tensors.size())), pointers_(tensors.size(), nullptr) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      pointers_[i] = lent_[i].get([&tensor = tensors[i]] { return tensor ? make_tensor(tensor) : nullptr; });
    }
  }
  distag_tensor* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  const std::unique_ptr<Lent<distag_tensor>[]> lent_;
  std::vector<distag_tensor*> pointers_;
};

// Handles that a callback writes: they pass to distag, even if it fails.
class WrittenTensors {
 public:
  explicit WrittenTensors(size_t count) : pointers_(count, nullptr), taken_(count) {}

  distag_tensor** data() { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

  // Call right after the callback.
  void take() {
    std::transform(pointers_.begin(), pointers_.end(), taken_.begin(),
                   [](distag_tensor* p) { return take_written(p); });
  }

  Tensors tensors(const std::string& what, bool may_be_null) const {
    Tensors tensors;
    tensors.reserve(pointers_.size());
    for (size_t i = 0; i < pointers_.size(); ++i) {
      if (pointers_[i] == nullptr && !may_be_null) {
        fail(Status::kInvalidArgument, "{} left output {} NULL", what, i);
      }
      if (pointers_[i] != nullptr && !taken_[i]) {
        fail(Status::kInvalidArgument, "{} wrote something that is no tensor handle to output {}", what, i);
      }
      tensors.push_back(taken_[i] ? taken_[i]->tensor() : Tensor());
    }
    return tensors;
  }

 private:
  std::vector<distag_tensor*> pointers_;
  std::vector<Ref<distag_tensor>> taken_;
};

Tensors run_forward(const HostOp& op, std::span<const Tensor> inputs, size_t output_count) {
  const std::string what = fmt::format("custom op \"{}\"", op.name);
  const LentTensors lent(inputs);
  WrittenTensors written(output_count);
  distag_error err = DISTAG_ERROR_INIT;
  const distag_status status = call_host(
      [&] { return op.forward(op.data.get(), lent.data(), lent.size(), written.data(), written.size(), &err); });
  written.take();
  if (status != DISTAG_OK) throw callback_error(status, err, what);
  Tensors outputs = written.tensors(what, false);
  for (const Tensor& output : outputs) {
    const bool is_input =
        std::any_of(inputs.begin(), inputs.end(), [&output](const Tensor& input) { return input.id() == output.id(); });
    if (is_input) fail(Status::kInvalidArgument, "{} gave an input as its output: make a new tensor", what);
  }
  return outputs;
}

Tensors run_backward(const HostOp& op, const Tensors& output_gradients, size_t input_count) {
  const std::string what = fmt::format("backward of custom op \"{}\"", op.name);
  const LentTensors lent(output_gradients);
  WrittenTensors written(input_count);
  distag_error err = DISTAG_ERROR_INIT;
  const distag_status status = call_host(
      [&] { return op.backward(op.data.get(), lent.data(), lent.size(), written.data(), written.size(), &err); });
  written.take();
  if (status != DISTAG_OK) throw callback_error(status, err, what).add_context(what);
  return written.tensors(what, true);
}

autograd::CustomOp make_custom_op(std::shared_ptr<HostOp> host) {
  autograd::CustomOp op;
  op.name = host->name;
  op.forward = [host](std::span<const Tensor> inputs, size_t count) { return run_forward(*host, inputs, count); };
  if (host->backward != nullptr) {
    op.backward = [host](Tensors gradients, size_t count) { return run_backward(*host, gradients, count); };
  }
  return op;
}

}  // namespace

distag_status distag_apply_custom(const distag_custom_op* op, distag_tensor* const* inputs, size_t input_count,
                                  distag_tensor** out_outputs, size_t output_count, distag_error* err) {
  if (out_outputs != nullptr) std::fill_n(out_outputs, output_count, nullptr);
  // Nothing of a struct of unknown size is used, not even destroy.
  const bool is_given = is_readable(op, sizeof(distag_custom_op));
  GivenData data(is_given ? op->user_data : nullptr, is_given ? op->destroy : nullptr);
  return guard(__func__, err, [&] {
    const Tensors tensors = need_tensors(inputs, input_count, "inputs");
    const distag_custom_op given = read_struct(&need_pointer(op, "op"), "distag_custom_op");
    check_array(out_outputs, output_count, "out_outputs");
    need_zero(given.reserved, "distag_custom_op.reserved");
    std::string name = need_text(given.name, "distag_custom_op.name");
    if (given.forward == nullptr) refuse_null("distag_custom_op.forward");
    auto host = std::make_shared<HostOp>(HostOp{name, given.forward, given.backward, std::move(data)});
    give_tensors(autograd::apply_custom(make_custom_op(std::move(host)), tensors, output_count), out_outputs,
                 output_count, name);
  });
}
