// Runs a program of calls on tensors, ops, hooks, contexts and passes; see program.h.
#include "fuzz/program.h"

namespace {

using namespace distag::fuzz;

distag_status on_forward(void* host, distag_tensor* const* inputs, size_t count, distag_tensor** outputs, size_t,
                         distag_error* err) {
  const Host& mine = *static_cast<Host*>(host);
  return mine.program->call_back(mine, count > 0 ? inputs[0] : nullptr, outputs, err);
}

distag_status on_backward(void* host, distag_tensor* const* gradients, size_t, distag_tensor** inputs, size_t count,
                          distag_error* err) {
  const Host& mine = *static_cast<Host*>(host);
  return mine.program->call_back(mine, gradients[0], count > 0 ? inputs : nullptr, err);
}

distag_status on_gradient(void* host, distag_tensor* gradient, distag_tensor** out, distag_error* err) {
  const Host& mine = *static_cast<Host*>(host);
  return mine.program->call_back(mine, gradient, out, err);
}

class GraphProgram final : public Program {
 public:
  using Program::Program;

 private:
  void step() override;
  void apply_by_name();
  distag_value* attribute(const std::string& signature, const char* name);
  void apply_custom();
  void hook();
  void look();
};

void GraphProgram::step() {
  using Step = void (GraphProgram::*)();
  constexpr Step kSteps[] = {&GraphProgram::make_tensor,   &GraphProgram::drop,          &GraphProgram::change_tensor,
                             &GraphProgram::make_context,  &GraphProgram::run_pass,      &GraphProgram::apply,
                             &GraphProgram::apply_by_name, &GraphProgram::apply_by_name, &GraphProgram::apply_custom,
                             &GraphProgram::hook,          &GraphProgram::look};
  (this->*kSteps[in_.below(std::size(kSteps))])();
}

// A value of the type that the signature has for the attribute.
distag_value* GraphProgram::attribute(const std::string& signature, const char* name) {
  const size_t end = signature.find(std::string(" ") + name);
  const size_t begin = signature.find_last_of(" (", end - 1) + 1;
  const std::string type = signature.substr(begin, end - begin);
  distag_value* value = nullptr;
  if (type == "int64") distag_value_create_int64(in_.integer(), &value, nullptr);
  if (type == "float64") distag_value_create_float64(in_.number(), &value, nullptr);
  if (type == "bool") distag_value_create_bool(in_.flag(), &value, nullptr);
  if (type == "text" || type == "dtype") distag_value_create_text(text(), &value, nullptr);
  if (type == "int64[]") {
    const std::vector<int64_t> items = in_.integers(4);
    distag_value_create_int64_list(items.data(), items.size(), &value, nullptr);
  }
  return value;
}

void GraphProgram::apply_by_name() {
  distag_op_info op = DISTAG_OP_INFO_INIT;
  if (call([&](distag_error* err) { return distag_get_op(in_.byte() % 80, &op, err); }) != DISTAG_OK) return;
  std::vector<const char*> names;
  std::vector<distag_value*> items;
  for (uint32_t i = 0; i < op.attribute_count; ++i) {
    if (in_.below(4) == 0) continue;
    distag_value* const item = attribute(op.signature, op.attribute_names[i]);
    if (item == nullptr) continue;
    names.push_back(op.attribute_names[i]);
    items.push_back(item);
  }
  distag_value* attributes = nullptr;
  distag_value_create_map(names.data(), items.data(), items.size(), &attributes, nullptr);
  for (distag_value* item : items) distag_value_release(item);
  const std::vector<distag_tensor*> inputs = picks<distag_tensor>(3);
  const uint8_t kind = in_.byte();
  std::vector<distag_tensor*> outputs(kind % 16 == 15 ? 3 : 1);
  const distag_status status = call([&](distag_error* err) {
    return distag_apply(op.name, inputs.data(), inputs.size(), kind < 250 ? attributes : pick<distag_value>(),
                        kind % 32 == 31 ? kind : 0, outputs.data(), outputs.size(), err);
  });
  distag_value_release(attributes);
  for (distag_tensor* output : outputs) {
    check((status == DISTAG_OK) == (output != nullptr));
    if (output != nullptr) keep(output);
  }
}

void GraphProgram::apply_custom() {
  const distag_custom_op op = {sizeof op,   0,           text(), on_forward, in_.flag() ? on_backward : nullptr,
                               make_host(), destroy_host};
  const std::vector<distag_tensor*> inputs = picks<distag_tensor>(3);
  make<distag_tensor>([&](distag_tensor** out, distag_error* err) {
    return distag_apply_custom(&op, inputs.data(), inputs.size(), out, 1, err);
  });
}

void GraphProgram::hook() {
  distag_tensor* const tensor = pick<distag_tensor>();
  uint64_t id = in_.below(4);
  if (in_.flag()) {
    Host* const host = make_host();
    call([&](distag_error* err) { return distag_tensor_add_hook(tensor, on_gradient, host, destroy_host, &id, err); });
  } else {
    call([&](distag_error* err) { return distag_tensor_remove_hook(tensor, id, err); });
  }
}

void GraphProgram::look() {
  distag_context* const context = pick<distag_context>();
  distag_tensor* const tensor = pick<distag_tensor>();
  double buffer[kMostElements];
  call([&](distag_error* err) { return distag_tensor_copy_data(tensor, buffer, sizeof buffer, err); });
  call([&](distag_error* err) { return distag_tensor_get_item(tensor, buffer, err); });
  make<distag_gradients>(
      [&](distag_gradients** out, distag_error* err) { return distag_get_gradients(context, out, err); });
  distag_gradients* const gradients = pick<distag_gradients>();
  keep_lent(distag_gradients_get_gradient(gradients, in_.byte()));
  keep_lent(distag_gradients_find(gradients, tensor));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run_program<GraphProgram>(data, size);
  return 0;
}
