// Runs a program of calls on optimizers, their settings and their states; see program.h.
#include "fuzz/program.h"

namespace {

using namespace distag::fuzz;

class OptimizerProgram final : public Program {
 public:
  using Program::Program;

 private:
  void step() override;
  void make_optimizer();
  void optimize();
  void change_state();
};

void OptimizerProgram::step() {
  using Step = void (OptimizerProgram::*)();
  constexpr Step kSteps[] = {&OptimizerProgram::make_tensor,
                             &OptimizerProgram::drop,
                             &OptimizerProgram::change_tensor,
                             &OptimizerProgram::make_context,
                             &OptimizerProgram::run_pass,
                             &OptimizerProgram::apply,
                             &OptimizerProgram::make_number_or_text,
                             &OptimizerProgram::make_list_or_map,
                             &OptimizerProgram::make_optimizer,
                             &OptimizerProgram::optimize,
                             &OptimizerProgram::change_state};
  (this->*kSteps[in_.below(std::size(kSteps))])();
}

void OptimizerProgram::make_optimizer() {
  constexpr const char* kKinds[] = {"sgd",     "adagrad", "adam",  "adamw", "adadelta",
                                    "rmsprop", "adamax",  "rprop", "newton"};
  const char* const kind = kKinds[in_.below(std::size(kKinds))];
  const std::vector<distag_value*> parameters = picks<distag_value>(3);
  make<distag_optimizer>([&](distag_optimizer** out, distag_error* err) {
    return distag_optimizer_create(nullptr, kind, parameters.data(), parameters.size(), out, err);
  });
}

void OptimizerProgram::optimize() {
  const uint8_t kind = in_.byte();
  distag_optimizer* const optimizer = pick<distag_optimizer>();
  distag_context* const context = pick<distag_context>();
  const double number = in_.number();
  double norm = 0;
  call([&](distag_error* err) {
    switch (kind % 4) {
      case 0:
        return distag_optimizer_set(optimizer, text(), number, err);
      case 1:
        return distag_optimizer_clip(optimizer, context, number, nullptr, &norm, err);
      default:
        return distag_optimizer_step(optimizer, context, nullptr, err);
    }
  });
}

// Saves a state, and loads one in which an entry is another value.
void OptimizerProgram::change_state() {
  distag_optimizer* const optimizer = pick<distag_optimizer>();
  make<distag_value>(
      [&](distag_value** out, distag_error* err) { return distag_optimizer_save(optimizer, nullptr, out, err); });
  distag_value* const map = pick<distag_value>();
  const size_t count = distag_value_get_count(map);
  const size_t changed = in_.byte();
  std::vector<const char*> keys;
  std::vector<distag_value*> items;
  for (size_t i = 0; i < count && distag_value_get_key(map, i) != nullptr; ++i) {
    keys.push_back(distag_value_get_key(map, i));
    items.push_back(i == changed ? pick<distag_value>() : distag_value_get_item(map, i));
  }
  if (!items.empty()) {
    make<distag_value>([&](distag_value** out, distag_error* err) {
      return distag_value_create_map(keys.data(), items.data(), items.size(), out, err);
    });
  }
  keep_lent(distag_value_get_item(map, changed));
  distag_value* const state = pick<distag_value>();
  call([&](distag_error* err) { return distag_optimizer_load(optimizer, state, nullptr, err); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run_program<OptimizerProgram>(data, size);
  return 0;
}
