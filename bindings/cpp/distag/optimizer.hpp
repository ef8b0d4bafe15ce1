// Optimizers: they update parameters at their owners.
#ifndef DISTAG_OPTIMIZER_HPP
#define DISTAG_OPTIMIZER_HPP

#include "worker.hpp"

namespace distag {

struct setting {
  const char* name;  // "lr" "momentum" "weight_decay" ...
  double value;      // 0 and 1 for no and yes
};

// "sgd" "adagrad" "adam" "adamw" "adadelta" "rmsprop" "adamax" or "rprop", by PyTorch's rules. Thread-safe.
class optimizer : public detail::handle<distag_optimizer, distag_optimizer_retain, distag_optimizer_release> {
 public:
  optimizer() noexcept = default;
  // Parameters are tensors of this process, and rrefs to tensors or lists of them, anywhere.
  optimizer(const worker& with, text kind, const arguments& parameters, std::initializer_list<setting> settings = {},
            outcome err = {}) {
    create(with.get(), kind, parameters, settings, err);
  }
  // Without a worker: all parameters are tensors of this process.
  optimizer(text kind, const arguments& parameters, std::initializer_list<setting> settings = {}, outcome err = {}) {
    create(nullptr, kind, parameters, settings, err);
  }

  optimizer(const worker& with, text kind, const arguments& parameters, status& err)
      : optimizer(with, kind, parameters, {}, outcome(err)) {}
  optimizer(text kind, const arguments& parameters, status& err) : optimizer(kind, parameters, {}, outcome(err)) {}

  void set(text setting, double value, outcome err = {}) const {
    err.check(distag_optimizer_set(get(), setting.c_str(), value, err.raw()));
  }
  // Updates each parameter with its gradient in the context, at all owners. Blocks.
  void step(const context& with, const call_options& options = {}, outcome err = {}) const {
    const detail::raw_call_options raw(options);
    err.check(distag_optimizer_step(get(), with.get(), &raw, err.raw()));
  }
  void step(const context& with, status& err) const { step(with, call_options(), outcome(err)); }
  future<void> step_async(const context& with, const call_options& options = {}, outcome err = {}) const {
    distag_future* made = nullptr;
    const detail::raw_call_options raw(options);
    err.check(distag_optimizer_step_async(get(), with.get(), &raw, &made, err.raw()));
    return future<void>(made);
  }
  future<void> step_async(const context& with, status& err) const {
    return step_async(with, call_options(), outcome(err));
  }
  // Ranks of the owners that applied the last step.
  std::vector<std::int32_t> stepped_ranks(outcome err = {}) const {
    distag_optimizer* raw = get();
    return detail::copy_ranks(
        [raw](std::int32_t* ranks, std::size_t capacity, std::size_t* count, distag_error* error) {
          return distag_optimizer_copy_stepped_ranks(raw, ranks, capacity, count, error);
        },
        err);
  }
  // Limits the joint 2-norm of the gradients, and returns the norm that it found. Blocks.
  double clip(const context& with, double max_norm, const call_options& options = {}, outcome err = {}) const {
    double norm = 0;
    const detail::raw_call_options raw(options);
    err.check(distag_optimizer_clip(get(), with.get(), max_norm, &raw, &norm, err.raw()));
    return norm;
  }
  double clip(const context& with, double max_norm, status& err) const {
    return clip(with, max_norm, call_options(), outcome(err));
  }
  future<double> clip_async(const context& with, double max_norm, const call_options& options = {},
                            outcome err = {}) const {
    distag_future* made = nullptr;
    const detail::raw_call_options raw(options);
    err.check(distag_optimizer_clip_async(get(), with.get(), max_norm, &raw, &made, err.raw()));
    return future<double>(made);
  }
  future<double> clip_async(const context& with, double max_norm, status& err) const {
    return clip_async(with, max_norm, call_options(), outcome(err));
  }
  // The state at all owners and the settings, as one value. Both block.
  value save(const call_options& options = {}, outcome err = {}) const {
    value state;
    const detail::raw_call_options raw(options);
    err.check(distag_optimizer_save(get(), &raw, state.put(), err.raw()));
    return state;
  }
  value save(status& err) const { return save(call_options(), outcome(err)); }
  void load(const value& state, const call_options& options = {}, outcome err = {}) const {
    const detail::raw_call_options raw(options);
    err.check(distag_optimizer_load(get(), state.get(), &raw, err.raw()));
  }
  void load(const value& state, status& err) const { load(state, call_options(), outcome(err)); }
  future<value> save_async(const call_options& options = {}, outcome err = {}) const {
    distag_future* made = nullptr;
    const detail::raw_call_options raw(options);
    err.check(distag_optimizer_save_async(get(), &raw, &made, err.raw()));
    return future<value>(made);
  }
  future<value> save_async(status& err) const { return save_async(call_options(), outcome(err)); }
  future<void> load_async(const value& state, const call_options& options = {}, outcome err = {}) const {
    distag_future* made = nullptr;
    const detail::raw_call_options raw(options);
    err.check(distag_optimizer_load_async(get(), state.get(), &raw, &made, err.raw()));
    return future<void>(made);
  }
  future<void> load_async(const value& state, status& err) const {
    return load_async(state, call_options(), outcome(err));
  }

 private:
  void create(distag_worker* with, text kind, const arguments& parameters, std::initializer_list<setting> settings,
              outcome& err) {
    const arguments::array given(parameters, err);
    if (!given.ok()) return;
    if (!err.check(distag_optimizer_create(with, kind.c_str(), given.data(), given.size(), put(), err.raw()))) return;
    for (const setting& each : settings) set(each.name, each.value, err);
  }
};

}  // namespace distag

#endif
