// Training over two processes, as in the peer's script: the values that live at the other worker are made there, and
// reached through remote references.
#include <cmath>

#include "bench/step.h"

namespace bench {

namespace {

constexpr const char* kOther = "worker1";

// ---- functions of the other worker ----

distag_status answer(distag_invocation* invocation, Step& step, distag_tensor* result, distag_error* error) {
  if (step.error()->code != DISTAG_OK) return distag_error_set(error, step.error()->code, step.error()->message);
  return distag_invocation_return(invocation, distag_tensor_as_value(result), error);
}

// A parameter of the shape [rows, columns], or [rows] for 0 columns, of normal numbers times 1 / sqrt(divisor); 0:
// zeros.
distag_status make_parameter(void*, distag_invocation* invocation, distag_error* error) {
  int64_t numbers[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    const distag_status status = distag_value_get_int64(distag_invocation_get_arg(invocation, i), &numbers[i], error);
    if (status != DISTAG_OK) return status;
  }
  std::vector<int64_t> shape = {numbers[0]};
  if (numbers[1] != 0) shape.push_back(numbers[1]);
  distag_tensor* made = parameter(shape, numbers[2] == 0 ? 0 : 1 / std::sqrt(static_cast<double>(numbers[2])), 3);
  const distag_status status = distag_invocation_return(invocation, distag_tensor_as_value(made), error);
  distag_tensor_release(made);
  return status;
}

// x through two layers: weight, bias, weight, bias, x.
distag_status second_half(void*, distag_invocation* invocation, distag_error* error) {
  distag_tensor* args[5] = {};
  for (size_t i = 0; i < 5; ++i) distag_invocation_get_tensor(invocation, i, &args[i], error);
  Step step;
  distag_tensor* hidden = step.apply(distag_relu, step.apply(distag_linear, args[4], args[0], args[1]));
  return answer(invocation, step, step.apply(distag_linear, hidden, args[2], args[3]), error);
}

// Rows of a table: table, indices.
distag_status look_up(void*, distag_invocation* invocation, distag_error* error) {
  distag_tensor* args[2] = {};
  for (size_t i = 0; i < 2; ++i) distag_invocation_get_tensor(invocation, i, &args[i], error);
  Step step;
  distag_tensor* inputs[] = {args[1], args[0]};
  distag_tensor* rows = nullptr;
  distag_apply("embedding", inputs, 2, nullptr, 0, &rows, 1, step.error());
  const distag_status status = answer(invocation, step, rows, error);
  distag_tensor_release(rows);
  return status;
}

// ---- the rows ----

distag_rref* remote_parameter(int64_t rows, int64_t columns, int64_t divisor) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_value* args[3] = {};
  distag_value_create_int64(rows, &args[0], &error);
  distag_value_create_int64(columns, &args[1], &error);
  distag_value_create_int64(divisor, &args[2], &error);
  distag_rref* made = nullptr;
  distag_remote(pair_worker(), nullptr, kOther, "make_parameter", args, 3, nullptr, &made, &error);
  check(error, "remote");
  for (distag_value* arg : args) distag_value_release(arg);
  return made;
}

distag_optimizer* sgd(const std::vector<distag_value*>& parameters) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_optimizer* made = nullptr;
  distag_optimizer_create(pair_worker(), "sgd", parameters.data(), parameters.size(), &made, &error);
  distag_optimizer_set(made, "lr", 0.05, &error);
  check(error, "optimizer");
  return made;
}

// Forward, by `loss_of`, then backward and a step of the optimizer.
template <typename LossOf>
void train(distag_optimizer* optimizer, LossOf loss_of) {
  Step step;
  distag_context* context = nullptr;
  distag_context_create(pair_worker(), &context, step.error());
  distag_tensor* loss = loss_of(step, context);
  distag_backward(context, &loss, 1, nullptr, step.error());
  distag_optimizer_step(optimizer, context, nullptr, step.error());
  step.done();
  distag_context_release(context);
}

// Calls the function; the tensor it answers lives as long as `result`.
distag_tensor* call(Step& step, distag_context* context, const char* function, const std::vector<distag_value*>& args,
                    distag_value** result) {
  distag_tensor* tensor = nullptr;
  distag_call(pair_worker(), context, kOther, function, args.data(), args.size(), nullptr, result, step.error());
  distag_value_get_tensor(*result, &tensor, step.error());
  return tensor;
}

// A 784-512-512-10 MLP, batch 128, cross entropy, SGD: the second and third layer at the other worker.
void pipeline() {
  distag_tensor* weight = parameter({512, 784}, 1 / std::sqrt(784.0), 1);
  distag_tensor* bias = parameter({512}, 0, 2);
  distag_rref* second[] = {remote_parameter(512, 512, 512), remote_parameter(512, 0, 0), remote_parameter(10, 512, 512),
                           remote_parameter(10, 0, 0)};
  std::vector<distag_value*> parameters = {distag_tensor_as_value(weight), distag_tensor_as_value(bias)};
  for (distag_rref* rref : second) parameters.push_back(distag_rref_as_value(rref));
  distag_optimizer* optimizer = sgd(parameters);
  distag_tensor* x = uniform({128, 784}, false, 5);
  int64_t classes[128];
  for (int64_t i = 0; i < 128; ++i) classes[i] = i * 7 % 10;
  distag_error error = DISTAG_ERROR_INIT;
  const int64_t batch = 128;
  distag_tensor* y = nullptr;
  distag_tensor_create(classes, sizeof classes, DISTAG_INT64, &batch, 1, &y, &error);
  check(error, "targets");
  const auto step = [&] {
    distag_value* result = nullptr;
    train(optimizer, [&](Step& s, distag_context* context) {
      std::vector<distag_value*> args(parameters.begin() + 2, parameters.end());
      args.push_back(distag_tensor_as_value(s.apply(distag_relu, s.apply(distag_linear, x, weight, bias))));
      return s.apply(distag_cross_entropy, call(s, context, "second_half", args, &result), y);
    });
    distag_value_release(result);
  };
  report("pipeline_mlp_step", timed(step, 60, 10), "ms");
  distag_optimizer_release(optimizer);
  for (distag_tensor* tensor : {weight, bias, x, y}) distag_tensor_release(tensor);
  for (distag_rref* rref : second) distag_rref_release(rref);
}

// A table of 20000 x 64 at the other worker, of which 256 rows at a time are looked up and trained.
void parameter_server() {
  distag_rref* table = remote_parameter(20000, 64, 1);
  distag_tensor* weight = uniform({64, 1}, true, 1);
  distag_optimizer* optimizer = sgd({distag_rref_as_value(table), distag_tensor_as_value(weight)});
  int64_t indices[256];
  for (int64_t i = 0; i < 256; ++i) indices[i] = i * 7919 % 20000;
  distag_error error = DISTAG_ERROR_INIT;
  const int64_t batch = 256;
  distag_tensor* index = nullptr;
  distag_tensor_create(indices, sizeof indices, DISTAG_INT64, &batch, 1, &index, &error);
  check(error, "indices");
  const std::vector<distag_value*> args = {distag_rref_as_value(table), distag_tensor_as_value(index)};
  const auto step = [&] {
    distag_value* result = nullptr;
    train(optimizer, [&](Step& s, distag_context* context) {
      distag_tensor* product = s.apply(distag_matmul, call(s, context, "look_up", args, &result), weight);
      return s.mean(s.apply(distag_mul, product, product));
    });
    distag_value_release(result);
  };
  report("parameter_server_step", timed(step, 60, 10), "ms");
  distag_optimizer_release(optimizer);
  distag_tensor_release(index);
  distag_tensor_release(weight);
  distag_rref_release(table);
}

// A value made at the other worker and fetched.
void create_to_here() {
  distag_tensor* x = uniform({9}, false, 7);
  distag_value* args[] = {distag_tensor_as_value(x)};
  const auto step = [&args] {
    distag_error error = DISTAG_ERROR_INIT;
    distag_rref* rref = nullptr;
    distag_value* value = nullptr;
    distag_remote(pair_worker(), nullptr, kOther, "neg", args, 1, nullptr, &rref, &error);
    distag_rref_fetch(rref, nullptr, nullptr, &value, &error);
    check(error, "create and fetch");
    distag_value_release(value);
    distag_rref_release(rref);
  };
  report("rref_create_to_here", timed(step, 1000, 30), "us");
  distag_tensor_release(x);
}

}  // namespace

void register_training(distag_worker* worker) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_worker_register(worker, "make_parameter", make_parameter, nullptr, nullptr, nullptr, &error);
  distag_worker_register(worker, "second_half", second_half, nullptr, nullptr, nullptr, &error);
  distag_worker_register(worker, "look_up", look_up, nullptr, nullptr, nullptr, &error);
  check(error, "register");
}

std::vector<Row> training_rows() {
  return {{"rref_create_to_here", create_to_here},
          {"pipeline_mlp_step", pipeline},
          {"parameter_server_step", parameter_server}};
}

}  // namespace bench
