// A torch::nn model cut in two over two processes: distag carries tensors and gradients, libtorch computes.
//
//   distag run -n 2 ./torch_halves [STEPS]
//
// Rank 0, "first", has the data and the first half; rank 1, "second", the other. Each half's forward is a function of
// distag whose op runs libtorch's autograd in its backward, and each half has a torch::optim of its own. Rank 0 has the
// whole model as well, for comparison: gradients and losses are the same.
#include <torch/nn.h>
#include <torch/optim.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <distag/torch.hpp>

namespace {

constexpr double kRate = 0.1, kTolerance = 1e-6;

torch::nn::Sequential make_first() {
  return torch::nn::Sequential(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Linear(16, 16),
                               torch::nn::Tanh());
}
torch::nn::Sequential make_second() {
  return torch::nn::Sequential(torch::nn::Linear(16, 16), torch::nn::ReLU(), torch::nn::Linear(16, 3));
}

torch::optim::SGD make_optimizer(const torch::nn::Sequential& model) {
  return torch::optim::SGD(model->parameters(), torch::optim::SGDOptions(kRate).momentum(0.9));
}

// Half a model, offered to the group.
class half {
 public:
  half(const distag::worker& worker, torch::nn::Sequential model)
      : model_(std::move(model)), optimizer_(make_optimizer(model_)) {
    worker.register_function("forward", [this](const distag::tensor& x) {
      return distag::apply_torch([this](const at::Tensor& given) { return model_->forward(given); }, x);
    });
    worker.register_function("step", [this] {
      optimizer_.step();
      optimizer_.zero_grad();
    });
    worker.register_function("gradients", [this] {
      std::vector<distag::tensor> all;
      for (const at::Tensor& each : model_->parameters()) all.push_back(distag::from_torch(each.grad().clone()));
      return all;
    });
  }

 private:
  torch::nn::Sequential model_;
  torch::optim::SGD optimizer_;
};

// The model in one process, with the same seed.
class whole {
 public:
  whole(const torch::nn::Sequential& first, const torch::nn::Sequential& second)
      : first_(first), second_(second), optimizers_{make_optimizer(first_), make_optimizer(second_)} {}

  double run(const at::Tensor& x, const at::Tensor& targets) {
    const at::Tensor loss = torch::nn::functional::cross_entropy(second_->forward(first_->forward(x)), targets);
    loss.backward();
    return loss.item<double>();
  }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const auto& part : {first_, second_}) {
      for (const at::Tensor& each : part->parameters()) all.push_back(each.grad());
    }
    return all;
  }
  void step() {
    for (auto& each : optimizers_) {
      each.step();
      each.zero_grad();
    }
  }

 private:
  torch::nn::Sequential first_, second_;
  torch::optim::SGD optimizers_[2];
};

// The largest difference between the gradients of both halves and those of the whole model.
double compare(const distag::worker& worker, const whole& reference) {
  std::vector<distag::tensor> found;
  for (const char* name : {"first", "second"}) {
    for (auto& each : worker.call<std::vector<distag::tensor>>(name, "gradients")) found.push_back(std::move(each));
  }
  const std::vector<at::Tensor> expected = reference.gradients();
  if (found.size() != expected.size()) return 1;
  double largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, (distag::to_torch(found[i]) - expected[i]).abs().max().item<double>());
  }
  return largest;
}

// Makes a step in both processes, and in the whole model; returns the largest difference between them.
double train_step(const distag::worker& worker, whole& reference, const at::Tensor& x, const at::Tensor& targets) {
  const distag::tensor input = distag::from_torch(x);
  if (distag::to_torch(input).data_ptr() != x.data_ptr()) return std::puts("the tensor was copied"), 1;
  const distag::context context(worker);
  const auto hidden = context.call<distag::tensor>("first", "forward", {input});
  const auto logits = context.call<distag::tensor>("second", "forward", {hidden});
  const distag::tensor loss = distag::cross_entropy(logits, distag::from_torch(targets));
  context.backward(loss);

  const double expected = reference.run(x, targets);
  const double difference = std::max(compare(worker, reference), std::abs(loss.item() - expected));
  std::printf("loss %.6f\n", loss.item());
  for (const char* name : {"first", "second"}) worker.call(name, "step");
  reference.step();
  return difference;
}

void train(const distag::worker& worker, whole& reference, int steps, bool* is_equal) {
  const at::Tensor x = torch::randn({32, 8});
  const at::Tensor targets = (x.sum(1) > 0).to(torch::kLong) + (x.select(1, 0) > 1).to(torch::kLong);
  double largest = 0;
  for (int i = 0; i < steps; ++i) largest = std::max(largest, train_step(worker, reference, x, targets));
  *is_equal = largest <= kTolerance;
  std::printf("%d steps over 2 processes, gradients as of the whole model: %s (%.1e)\n", steps,
              *is_equal ? "equal" : "different", largest);
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 20;
  distag::status missing;
  const int rank = distag::get_environment(missing).rank;
  if (rank < 0 || rank > 1)
    return std::fprintf(stderr, "usage: distag run -n 2 %s [STEPS]\n%s\n", argv[0], missing.message()), 2;
  at::set_num_threads(1);
  torch::manual_seed(1);
  const torch::nn::Sequential first = make_first(), second = make_second();  // the same in both processes
  whole reference(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(first->clone()),
                  std::dynamic_pointer_cast<torch::nn::SequentialImpl>(second->clone()));
  bool is_equal = true;
  try {
    distag::worker_options options;  // rank, size and address come from distag run
    options.name = rank == 0 ? "first" : "second";
    const distag::worker worker(options);
    const half own(worker, rank == 0 ? first : second);
    worker.start();
    if (rank == 0) train(worker, reference, steps, &is_equal);
    worker.shutdown();
  } catch (const std::exception& failure) {
    return std::fprintf(stderr, "%s: %s\n", rank == 0 ? "first" : "second", failure.what()), 1;
  }
  return is_equal ? 0 : 1;
}
