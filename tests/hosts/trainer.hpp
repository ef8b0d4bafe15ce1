// The component, as a user of the binding writes it: a worker whose functions run in the frames of the host, and one
// with a pool that calls it.
#ifndef DISTAG_TESTS_HOSTS_TRAINER_HPP
#define DISTAG_TESTS_HOSTS_TRAINER_HPP

#include <distag.hpp>

#include "component.hpp"

class trainer : public component {
 public:
  trainer() : frames_(make(0, "frames", distag::executor::host)), peer_(make(1, "peer", distag::executor::pool)) {
    distag::wait_all<void>({frames_.start_async(), peer_.start_async()});
  }
  ~trainer() override {
    const auto left = peer_.shutdown_async(std::chrono::seconds(120));
    frames_.shutdown(std::chrono::seconds(120));
    left.wait();
  }

  std::vector<double> train() override {
    const distag::tensor x = distag::tensor::of({1.0, 2.0, 3.0}).requires_grad(true);
    const distag::context context(frames_);
    context.backward(context.call<distag::tensor>("peer", "square", {x}).sum());
    return context.gradient(x).to_vector<double>();
  }

  bool frame() override {
    if (!open_) {
      open_ = peer_.call_async<distag::tensor>("frames", "echo", {payload_});
      ++calls_;
    }
    frames_.poll(0, std::chrono::milliseconds(1));
    if (!open_.is_ready()) return true;
    if (open_.get().count() != payload_.count()) return false;
    open_.close();
    return calls_ < 10;
  }

 private:
  static distag::worker make(int rank, const char* name, distag::executor executor) {
    distag::worker_options options;
    options.name = name;
    options.rank = rank;
    options.world_size = 2;
    options.rendezvous = "inproc://trainer";
    options.executor = executor;
    options.thread_count = 1;
    distag::worker worker(options);
    worker.register_function("square", [](const distag::tensor& x) { return x * x; });
    worker.register_function("echo", [](const distag::tensor& x) { return x; });
    return worker;
  }

  distag::worker frames_, peer_;
  distag::tensor payload_ = distag::ones({1 << 18});
  distag::future<distag::tensor> open_;
  int calls_ = 0;
};

#endif
