// Everything in the form that takes a status: compiled without exceptions and without RTTI, and run.
#include <distag.hpp>

#include <cstdio>

namespace {

struct layer {
  distag::tensor weight;
};

struct triple {
  distag::tensor forward(const distag::tensor& x, distag::status& err) { return x.mul_scalar(3, err); }
  std::vector<distag::tensor> backward(const std::vector<distag::tensor>& gradients, distag::status& err) {
    return {gradients[0].mul_scalar(3, err)};
  }
};

void offer(const distag::worker& worker, distag::status& err) {
  worker.register_function(
      "make",
      [](distag::status& own) {
        auto made = std::make_unique<layer>();
        made->weight = distag::full(2, {3}, own);
        made->weight.requires_grad(true, own);
        return made;
      },
      err);
  worker.register_function(
      "apply",
      [](layer& used, const distag::tensor& x, distag::status& own) {
        return distag::apply_custom("triple", triple(), used.weight.mul(x, own), own);
      },
      err);
  worker.register_function(
      "weight", [](layer& used) { return used.weight; }, err);
  worker.register_function(
      "fail", [](distag::status& own) { own.set(1042, "not today"); }, err);
}

// d sum(3 w x) / dx = 3 w = 6, by two workers.
double train(const distag::worker& worker, distag::status& err) {
  const distag::tensor x = distag::ones({3}, err).requires_grad(true, err);
  const distag::rref made = worker.remote("worker1", "make", err);
  const distag::rref weight = worker.remote("worker1", "weight", {made}, err);
  const distag::optimizer sgd(worker, "sgd", {weight}, {{"lr", 0.5}}, err);
  const distag::context context(worker, err);
  const auto y = context.call<distag::tensor>("worker1", "apply", {made, x}, err);
  context.backward(y.sum(err), err);
  const double gradient = context.gradient(x, err).slice(0, 0, 1, err).item(err);
  sgd.clip(context, 1e9, err);
  sgd.step(context, err);  // the weight: 2 - 0.5 * 3
  return gradient + 10 * weight.fetch<distag::tensor>(err).mean(err).item(err);
}

}  // namespace

int main() {
  distag::status err;
  distag::worker workers[2];  // they leave at the end of main
  std::vector<distag::future<void>> starts;
  for (int rank = 0; rank < 2; ++rank) {
    distag::worker_options options;
    options.rank = rank;
    options.world_size = 2;
    options.rendezvous = "inproc://without_exceptions";
    workers[rank] = distag::worker(options, err);
    offer(workers[rank], err);
    starts.push_back(workers[rank].start_async(err));
  }
  distag::wait_all(starts, err);
  const double found = train(workers[0], err);
  if (err) return std::printf("%s: %s\n", err.name(), err.message()), 1;
  if (found != 6 + 10 * 0.5) return std::printf("%g\n", found), 1;

  workers[0].call("worker1", "fail", err);
  if (static_cast<int>(err.code()) != 1042 || err.origin_rank() != 1 || !err.may_have_run()) return 1;
  const distag::tensor none = distag::tensor().relu(err).sum(err);  // the failure passes through a chain
  if (none || static_cast<int>(err.code()) != 1042) return 1;
  err.clear();
  distag::zeros({2}, err).matmul(distag::zeros({3}, err), err);
  if (err.code() != distag::errc::invalid_argument) return 1;
  return 0;
}
