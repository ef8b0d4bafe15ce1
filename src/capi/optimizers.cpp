// Optimizers.

#include <algorithm>

#include "capi/call_options.h"
#include "capi/context.h"
#include "capi/future.h"
#include "capi/optimizer.h"
#include "optim/rules.h"
#include "spmd/tensors.h"

using namespace distag;
using namespace distag::capi;

namespace {

optim::OptimizerCall make_call(const distag_optimizer& optimizer, const distag_call_options* given,
                               distag_context* context = nullptr) {
  CallOptions options = read_call_options(given, optimizer.worker(), context);
  return {options.timeout, std::move(options.within), std::move(options.label), std::move(options.trace_parent)};
}

// Within this process there is no owner to ask, so all parameters have to be tensors.
Tensors need_parameters_here(const Values& parameters) {
  Tensors tensors;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].kind() != ValueKind::kTensor) {
      refuse(Status::kInvalidArgument, "parameters[{}] is {}, not a tensor", i, kind_name(parameters[i].kind()));
    }
    tensors.push_back(parameters[i].as_tensor());
  }
  return tensors;
}

// The context's worker, if it has one, has to be the optimizer's, unless the optimizer has none.
std::shared_ptr<Context> need_context(const distag_optimizer& optimizer, distag_context* context) {
  const distag_context& live = need(context, "context");
  if (optimizer.worker() != nullptr && live.worker() != nullptr && live.worker() != optimizer.worker()) {
    refuse(Status::kInvalidArgument, "the context {:#x} is of another worker than the optimizer", live.id());
  }
  return live.shared();
}

// Begins an operation without waiting, which needs a worker's thread.
template <typename Operation>
void begin(const distag_optimizer& optimizer, const distag_call_options* options, distag_future** out_future,
           Operation&& operation) {
  need_pointer(out_future, "out_future");
  const optim::OptimizerCall call = make_call(optimizer, options);
  auto future = operation(call);                            // throws without a worker
  const ReserveScope scope(optimizer.worker()->reserve());  // an operation that has begun gets its future
  *out_future = new distag_future(std::move(future), *optimizer.worker());
}

}  // namespace

void distag_optimizer_retain(distag_optimizer* optimizer) { retain_handle(optimizer); }
void distag_optimizer_release(distag_optimizer* optimizer) { release_handle(optimizer); }

distag_status distag_optimizer_create(distag_worker* worker, const char* kind, distag_value* const* parameters,
                                      size_t parameter_count, distag_optimizer** out_optimizer, distag_error* err) {
  clear(out_optimizer);
  return guard(__func__, err, [=] {
    distag_worker* live = worker == nullptr ? nullptr : &need_worker(worker);
    Values values = need_values(parameters, parameter_count, "parameters");
    const std::string name = need_text(kind, "kind");
    need_pointer(out_optimizer, "out_optimizer");
    if (live != nullptr) live->check_up();
    if (values.empty()) {
      refuse(Status::kInvalidArgument, "there are no parameters: give the tensors, or the rrefs, that it is to update");
    }
    std::shared_ptr<optim::Optimizer> optimizer =
        live == nullptr ? optim::make_in_process_optimizer(optim::find_rule(name), need_parameters_here(values),
                                                           &spmd::part_of_state)
                        : live->core().optim().make_optimizer(name, std::move(values));
    *out_optimizer = new distag_optimizer(std::move(optimizer), live);
  });
}

distag_status distag_optimizer_set(distag_optimizer* optimizer, const char* setting, double value, distag_error* err) {
  return guard(__func__, err, [=] {
    optim::Optimizer& live = need(optimizer, "optimizer").get();
    live.set(need_text(setting, "setting"), value);
  });
}

distag_status distag_optimizer_step(distag_optimizer* optimizer, distag_context* context,
                                    const distag_call_options* options, distag_error* err) {
  return guard(__func__, err, [=] {
    check_present({optimizer, context}, {"optimizer", "context"});
    const distag_optimizer& live = need(optimizer, "optimizer");
    live.get().step(need_context(live, context), make_call(live, options, context));
  });
}

distag_status distag_optimizer_step_async(distag_optimizer* optimizer, distag_context* context,
                                          const distag_call_options* options, distag_future** out_future,
                                          distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    check_present({optimizer, context}, {"optimizer", "context"});
    const distag_optimizer& live = need(optimizer, "optimizer");
    const std::shared_ptr<Context> within = need_context(live, context);
    begin(live, options, out_future, [&](const auto& call) { return live.get().step_async(within, call); });
  });
}

distag_status distag_optimizer_copy_stepped_ranks(distag_optimizer* optimizer, int32_t* ranks, size_t capacity,
                                                  size_t* out_count, distag_error* err) {
  clear(out_count);
  return guard(__func__, err, [=] {
    optim::Optimizer& live = need(optimizer, "optimizer").get();
    check_array(ranks, capacity, "ranks");
    need_pointer(out_count, "out_count");
    const std::vector<int32_t> stepped = live.stepped_ranks();
    std::copy_n(stepped.begin(), std::min(capacity, stepped.size()), ranks);
    *out_count = stepped.size();
  });
}

distag_status distag_optimizer_clip(distag_optimizer* optimizer, distag_context* context, double max_norm,
                                    const distag_call_options* options, double* out_norm, distag_error* err) {
  clear(out_norm);
  return guard(__func__, err, [=] {
    check_present({optimizer, context}, {"optimizer", "context"});
    const distag_optimizer& live = need(optimizer, "optimizer");
    const double norm = live.get().clip(need_context(live, context), max_norm, make_call(live, options, context));
    if (out_norm != nullptr) *out_norm = norm;
  });
}

distag_status distag_optimizer_save(distag_optimizer* optimizer, const distag_call_options* options,
                                    distag_value** out_state, distag_error* err) {
  clear(out_state);
  return guard(__func__, err, [=] {
    const distag_optimizer& live = need(optimizer, "optimizer");
    need_pointer(out_state, "out_state");
    *out_state = make_value(live.get().save(make_call(live, options)));
  });
}

distag_status distag_optimizer_load(distag_optimizer* optimizer, distag_value* state,
                                    const distag_call_options* options, distag_error* err) {
  return guard(__func__, err, [=] {
    check_present({optimizer, state}, {"optimizer", "state"});
    const distag_optimizer& live = need(optimizer, "optimizer");
    live.get().load(need(state, "state").get(), make_call(live, options));
  });
}

distag_status distag_optimizer_clip_async(distag_optimizer* optimizer, distag_context* context, double max_norm,
                                          const distag_call_options* options, distag_future** out_future,
                                          distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    check_present({optimizer, context}, {"optimizer", "context"});
    const distag_optimizer& live = need(optimizer, "optimizer");
    const std::shared_ptr<Context> within = need_context(live, context);
    begin(live, options, out_future, [&](const auto& call) { return live.get().clip_async(within, max_norm, call); });
  });
}

distag_status distag_optimizer_save_async(distag_optimizer* optimizer, const distag_call_options* options,
                                          distag_future** out_future, distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    const distag_optimizer& live = need(optimizer, "optimizer");
    begin(live, options, out_future, [&live](const auto& call) { return live.get().save_async(call); });
  });
}

distag_status distag_optimizer_load_async(distag_optimizer* optimizer, distag_value* state,
                                          const distag_call_options* options, distag_future** out_future,
                                          distag_error* err) {
  clear(out_future);
  return guard(__func__, err, [=] {
    check_present({optimizer, state}, {"optimizer", "state"});
    const distag_optimizer& live = need(optimizer, "optimizer");
    const Value given = need(state, "state").get();
    begin(live, options, out_future, [&](const auto& call) { return live.get().load_async(given, call); });
  });
}
