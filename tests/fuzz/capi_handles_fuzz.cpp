// Runs a program of calls with DISTAG_VALIDATE=1, in which handles that have ended are used again, and whose functions,
// hooks and continuations go on with the program: on values, tensors, and a worker that calls itself; see program.h.
#include "fuzz/program.h"

namespace {

using namespace distag::fuzz;

constexpr int64_t kPatience = DISTAG_SECOND;

// Once, before the library asks for it.
void begin() {
  static const bool is_set = setenv("DISTAG_VALIDATE", "1", 1) == 0;
  check(is_set && validates());
}

distag_status on_gradient(void* host, distag_tensor* gradient, distag_tensor** out, distag_error* err) {
  const Host& mine = *static_cast<Host*>(host);
  return mine.program->call_back(mine, gradient, out, err);
}

distag_status on_call(void* host, distag_invocation* invocation, distag_error* err) {
  const Host& mine = *static_cast<Host*>(host);
  const distag_status status = mine.program->call_back(mine, nullptr, nullptr, err);
  if (status != DISTAG_OK) return status;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), err);
}

distag_status on_complete(void* host, distag_future* future, distag_value** out, distag_error* err) {
  const Host& mine = *static_cast<Host*>(host);
  const distag_status status = mine.program->call_back(mine, nullptr, nullptr, err);
  if (status != DISTAG_OK) return status;
  distag_value* value = nullptr;
  if (distag_future_get_value(future, &value, err) != DISTAG_OK) return err->code;
  distag_value_retain(value);
  *out = value;
  return DISTAG_OK;
}

class HandlesProgram final : public Program {
 public:
  using Program::Program;
  ~HandlesProgram() override {
    end_worker(worker_);
    if (worker_ != nullptr) check(distag_worker_start(worker_, 0, nullptr) == DISTAG_E_INVALID_ARGUMENT);
  }

 private:
  void step() override;
  void hook();
  void start();
  void call_itself();
  void call_later();
  void poll();

  distag_worker* worker_ = nullptr;
};

void HandlesProgram::step() {
  using Step = void (HandlesProgram::*)();
  constexpr Step kSteps[] = {&HandlesProgram::make_tensor,
                             &HandlesProgram::make_number_or_text,
                             &HandlesProgram::make_list_or_map,
                             &HandlesProgram::make_context,
                             &HandlesProgram::apply,
                             &HandlesProgram::change_tensor,
                             &HandlesProgram::run_pass,
                             &HandlesProgram::drop,
                             &HandlesProgram::drop,
                             &HandlesProgram::hook,
                             &HandlesProgram::call_itself,
                             &HandlesProgram::call_later,
                             &HandlesProgram::poll};
  (this->*kSteps[in_.below(std::size(kSteps))])();
}

void HandlesProgram::hook() {
  distag_tensor* const tensor = pick<distag_tensor>();
  uint64_t id = 0;
  Host* const host = make_host();
  call([&](distag_error* err) { return distag_tensor_add_hook(tensor, on_gradient, host, destroy_host, &id, err); });
}

// Alone in its group; its functions run where this thread waits or polls.
void HandlesProgram::start() {
  if (worker_ != nullptr) return;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.executor = DISTAG_EXECUTOR_HOST;
  options.world_size = 1;
  options.rendezvous = "inproc://fuzz-handles";
  options.call_timeout_ns = kPatience;
  distag_worker* worker = nullptr;
  check(distag_worker_create(&options, &worker, nullptr) == DISTAG_OK);
  Host* const host = make_host();
  check(distag_worker_register(worker, "nobody", on_call, host, destroy_host, nullptr, nullptr) == DISTAG_OK);
  check(distag_worker_start(worker, 10 * DISTAG_SECOND, nullptr) == DISTAG_OK);
  worker_ = worker;
}

void HandlesProgram::call_itself() {
  start();
  distag_context* const context = pick<distag_context>();
  const std::vector<distag_value*> args = picks<distag_value>(2);
  const char* const function = in_.flag() ? "nobody" : text();
  make<distag_value>([&](distag_value** out, distag_error* err) {
    const distag_status status =
        distag_call(worker_, context, "worker0", function, args.data(), args.size(), nullptr, out, err);
    check(status != DISTAG_E_DEADLINE);
    return status;
  });
}

void HandlesProgram::call_later() {
  start();
  const std::vector<distag_value*> args = picks<distag_value>(2);
  make<distag_future>([&](distag_future** out, distag_error* err) {
    return distag_call_async(worker_, nullptr, "worker0", "nobody", args.data(), args.size(), nullptr, out, err);
  });
  distag_future* const future = pick<distag_future>();
  Host* const host = make_host();
  make<distag_future>([&](distag_future** out, distag_error* err) {
    return distag_future_then(future, on_complete, host, destroy_host, out, err);
  });
}

void HandlesProgram::poll() {
  distag_future* const future = pick<distag_future>();
  distag_value* value = nullptr;
  if (in_.flag()) distag_future_cancel(future);
  // The function that completes it may lie under this one on the stack: nothing waits for it there.
  const int64_t patience = handles_.depth() > 1 ? 0 : kPatience;
  call([&](distag_error* err) { return distag_future_wait(future, patience, err); });
  call([&](distag_error* err) { return distag_future_get_value(future, &value, err); });
  keep_lent(value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  begin();
  run_program<HandlesProgram>(data, size);
  return 0;
}
