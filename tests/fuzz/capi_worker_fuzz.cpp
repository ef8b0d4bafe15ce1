// Runs a program of calls on values, references to them and workers that never start; see program.h.
#include "fuzz/program.h"

namespace {

using namespace distag::fuzz;

distag_status on_call(void*, distag_invocation*, distag_error*) { return DISTAG_OK; }

class WorkerProgram final : public Program {
 public:
  using Program::Program;

 private:
  void step() override;
  void read_value();
  void make_worker();
  void work();
  void make_rref();
};

void WorkerProgram::step() {
  using Step = void (WorkerProgram::*)();
  constexpr Step kSteps[] = {&WorkerProgram::make_tensor,
                             &WorkerProgram::make_number_or_text,
                             &WorkerProgram::make_list_or_map,
                             &WorkerProgram::drop,
                             &WorkerProgram::read_value,
                             &WorkerProgram::make_worker,
                             &WorkerProgram::work,
                             &WorkerProgram::make_rref};
  (this->*kSteps[in_.below(std::size(kSteps))])();
}

void WorkerProgram::read_value() {
  distag_value* const value = pick<distag_value>();
  const size_t index = in_.byte();
  int64_t wholes[4];
  double numbers[4];
  int32_t flag = 0;
  size_t count = 0;
  void* object = nullptr;
  const char* words = nullptr;
  distag_tensor* tensor = nullptr;
  call([&](distag_error* err) { return distag_value_get_bool(value, &flag, err); });
  call([&](distag_error* err) { return distag_value_get_int64(value, wholes, err); });
  call([&](distag_error* err) { return distag_value_get_float64(value, numbers, err); });
  call([&](distag_error* err) { return distag_value_get_text(value, &words, err); });
  call([&](distag_error* err) { return distag_value_copy_int64s(value, wholes, index % 5, &count, err); });
  call([&](distag_error* err) { return distag_value_copy_float64s(value, numbers, index % 5, &count, err); });
  call([&](distag_error* err) { return distag_value_get_object(value, text(), &object, err); });
  call([&](distag_error* err) { return distag_value_get_tensor(value, &tensor, err); });
  keep_lent(tensor);
  keep_lent(distag_value_get_item(value, index));
  keep_lent(distag_value_get_entry(value, text()));
}

// Never started.
void WorkerProgram::make_worker() {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.executor = static_cast<uint32_t>(in_.below(4));
  options.rank = static_cast<int32_t>(in_.below(4)) - 1;
  options.world_size = static_cast<int32_t>(in_.below(5)) - 1;
  options.rendezvous = in_.flag() ? "inproc://fuzz" : text();
  if (in_.flag()) options.name = text();
  if (in_.below(4) == 0) options.bind = text();
  options.lease_ns = in_.integer();
  options.user_data = make_host();
  options.destroy = destroy_host;
  make<distag_worker>([&](distag_worker** out, distag_error* err) { return distag_worker_create(&options, out, err); });
}

void WorkerProgram::work() {
  distag_worker* const worker = pick<distag_worker>();
  const std::vector<distag_value*> args = picks<distag_value>(3);
  char buffer[64];
  size_t size = 0;
  Host* const host = make_host();
  call([&](distag_error* err) {
    return distag_worker_register(worker, text(), on_call, host, destroy_host, nullptr, err);
  });
  call([&](distag_error* err) { return distag_worker_unregister(worker, text(), 0, err); });
  call([&](distag_error* err) {
    return distag_call(worker, nullptr, text(), text(), args.data(), args.size(), nullptr, nullptr, err);
  });
  call([&](distag_error* err) { return distag_worker_copy_metrics(worker, buffer, sizeof buffer, &size, err); });
  call([&](distag_error* err) { return distag_worker_copy_report(worker, buffer, sizeof buffer, &size, err); });
  call([&](distag_error* err) { return distag_worker_poll(worker, 0, 0, &size, err); });
  if (in_.below(8) == 0) {
    make<distag_value>(
        [&](distag_value** out, distag_error* err) { return distag_worker_shutdown(worker, 0, out, err); });
  }
}

void WorkerProgram::make_rref() {
  distag_worker* const worker = pick<distag_worker>();
  distag_value* const value = pick<distag_value>();
  make<distag_rref>([&](distag_rref** out, distag_error* err) { return distag_rref_create(worker, value, out, err); });
  distag_rref* const rref = pick<distag_rref>();
  distag_value* local = nullptr;
  call([&](distag_error* err) { return distag_rref_get_local(rref, &local, err); });
  keep_lent(local);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run_program<WorkerProgram>(data, size);
  return 0;
}
