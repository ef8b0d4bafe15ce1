#include "trial.h"

#include <array>
#include <vector>

#include "handles.h"

namespace distag_tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPatience = 10 * DISTAG_SECOND;

std::chrono::microseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
}

std::array<Worker, 2> start_pair(const std::string& folder, distag_error& error) {
  const std::string rendezvous = "file://" + folder;
  std::array<Worker, 2> workers;
  std::array<Future, 2> starts;
  std::vector<distag_future*> futures;
  for (int rank = 0; rank < 2; ++rank) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    options.rank = rank;
    options.world_size = 2;
    options.thread_count = 1;
    options.call_timeout_ns = kPatience;
    options.job = "distag-doctor";
    options.rendezvous = rendezvous.c_str();
    distag_worker* worker = nullptr;
    distag_future* start = nullptr;
    distag_worker_create(&options, &worker, &error);
    workers[static_cast<size_t>(rank)].reset(worker);
    distag_worker_start_async(worker, kPatience, &start, &error);
    starts[static_cast<size_t>(rank)].reset(start);
    futures.push_back(start);
  }
  distag_wait_all(futures.data(), futures.size(), DISTAG_FOREVER, &error);
  return workers;
}

// mean((w * x - 1)^2); the other worker makes the product.
Tensor compute_loss(distag_worker* worker, distag_context* context, distag_tensor* weight, distag_tensor* x,
                    distag_error& error) {
  distag_value* arguments[] = {distag_tensor_as_value(weight), distag_tensor_as_value(x)};
  distag_value* made = nullptr;
  distag_call(worker, context, "worker1", "mul", arguments, 2, nullptr, &made, &error);
  const Value answer(made);
  distag_tensor *product = nullptr, *ones = nullptr, *loss = nullptr;
  distag_value_get_tensor(answer.get(), &product, &error);
  const int64_t shape[] = {2};
  distag_ones(DISTAG_FLOAT32, shape, 1, &ones, &error);
  const Tensor wanted(ones);
  distag_mse_loss(product, wanted.get(), &loss, &error);
  return Tensor(loss);
}

double item(distag_tensor* tensor, distag_error& error) {
  double value = 0;
  distag_tensor_get_item(tensor, &value, &error);
  return value;
}

void train(distag_worker* worker, Trial& trial, distag_error& error) {
  const float weights[] = {0, 0}, xs[] = {1, 2};
  const int64_t shape[] = {2};
  distag_tensor *made_weight = nullptr, *made_x = nullptr;
  distag_tensor_create(weights, sizeof weights, DISTAG_FLOAT32, shape, 1, &made_weight, &error);
  distag_tensor_create(xs, sizeof xs, DISTAG_FLOAT32, shape, 1, &made_x, &error);
  const Tensor weight(made_weight), x(made_x);
  distag_tensor_set_requires_grad(weight.get(), 1, &error);
  distag_context* made_context = nullptr;
  distag_context_create(worker, &made_context, &error);
  const Context context(made_context);
  distag_optimizer* made_optimizer = nullptr;
  distag_value* parameters[] = {distag_tensor_as_value(weight.get())};
  distag_optimizer_create(worker, "sgd", parameters, 1, &made_optimizer, &error);
  const Optimizer optimizer(made_optimizer);
  distag_optimizer_set(optimizer.get(), "lr", 0.1, &error);

  const Tensor before = compute_loss(worker, context.get(), weight.get(), x.get(), error);
  distag_tensor* roots[] = {before.get()};
  distag_backward(context.get(), roots, 1, nullptr, &error);
  distag_optimizer_step(optimizer.get(), context.get(), nullptr, &error);
  const Tensor after = compute_loss(worker, nullptr, weight.get(), x.get(), error);
  trial.loss_before = item(before.get(), error);
  trial.loss_after = item(after.get(), error);
}

}  // namespace

Trial train_one_step(const std::string& folder) {
  Trial trial;
  distag_error error = DISTAG_ERROR_INIT;
  const Clock::time_point begin = Clock::now();
  const std::array<Worker, 2> workers = start_pair(folder, error);
  trial.start = since(begin);
  check(error);
  const Clock::time_point step = Clock::now();
  train(workers[0].get(), trial, error);
  trial.step = since(step);
  for (const Worker& worker : workers) distag_worker_shutdown(worker.get(), 0, nullptr, nullptr);
  check(error);
  if (!(trial.loss_after < trial.loss_before)) throw std::runtime_error("the loss did not fall");
  return trial;
}

}  // namespace distag_tool
