// Rows of two worker processes on this machine: the caller here, the other one a process of the same program.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "bench/harness.h"

extern char** environ;

namespace bench {

namespace {

distag_worker* worker = nullptr;  // of the caller, while run_pair runs

// Gives its argument back.
distag_status give_back(void*, distag_invocation* invocation, distag_error* error) {
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), error);
}

distag_worker* meet(const char* rendezvous, int32_t rank, const Sockets& sockets) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_worker* made = make_worker(rendezvous, rank, 2, sockets);
  register_training(made);
  distag_worker_register(made, "give_back", give_back, nullptr, nullptr, nullptr, &error);
  distag_worker_start(made, 30 * DISTAG_SECOND, &error);
  check(error, "start");
  return made;
}

void leave(distag_worker* made) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_worker_shutdown(made, 30 * DISTAG_SECOND, nullptr, &error);
  check(error, "shutdown");
  distag_worker_release(made);
}

distag_tensor* random_tensor(int64_t count, bool requires_grad) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_tensor* made = nullptr;
  distag_rand(7, DISTAG_FLOAT32, &count, 1, &made, &error);
  distag_tensor_set_requires_grad(made, requires_grad ? 1 : 0, &error);
  check(error, "rand");
  return made;
}

void call(const char* function, distag_tensor* x) {
  distag_value* args[] = {distag_tensor_as_value(x)};
  distag_error error = DISTAG_ERROR_INIT;
  distag_value* result = nullptr;
  distag_call(worker, nullptr, "worker1", function, args, 1, nullptr, &result, &error);
  check(error, "call");
  distag_value_release(result);
}

void call_neg(distag_tensor* x) { call("neg", x); }

void latency(const char* name, int64_t count, int runs, const char* unit, const char* function = "neg") {
  distag_tensor* x = random_tensor(count, false);
  report(name, timed([x, function] { call(function, x); }, runs, 20), unit);
  distag_tensor_release(x);
}

// With a rest of a millisecond before each call, in which all threads go to sleep.
void paused_latency() {
  distag_tensor* x = random_tensor(1, false);
  std::vector<double> samples;
  for (int i = 0; i < 500; ++i) {
    rest(std::chrono::milliseconds(1));
    samples.push_back(timed([x] { call_neg(x); }, 1, 0).front());
  }
  report("rpc_latency_4B_paused", samples, "us");
  distag_tensor_release(x);
}

// Blocking calls from eight threads, as time for a call of all.
void throughput() {
  constexpr int kThreads = 8;
  constexpr int kCalls = 1000;
  distag_tensor* x = random_tensor(1, false);
  const auto burst = [x] {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([x] {
        for (int call = 0; call < kCalls; ++call) call_neg(x);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  std::vector<double> samples = timed(burst, 7, 1);
  for (double& sample : samples) sample /= kThreads * kCalls;
  report("rpc_throughput_8_threads", samples, "us");
  distag_tensor_release(x);
}

void async_per_call() {
  constexpr size_t kCalls = 5000;
  distag_tensor* x = random_tensor(1, false);
  distag_value* args[] = {distag_tensor_as_value(x)};
  std::vector<distag_future*> futures(kCalls);
  const auto burst = [&] {
    distag_error error = DISTAG_ERROR_INIT;
    for (distag_future*& future : futures) {
      distag_call_async(worker, nullptr, "worker1", "neg", args, 1, nullptr, &future, &error);
      check(error, "call");
    }
    for (distag_future* future : futures) {
      distag_future_wait(future, DISTAG_FOREVER, &error);
      distag_future_release(future);
    }
    check(error, "wait");
  };
  std::vector<double> samples = timed(burst, 5, 1);
  for (double& sample : samples) sample /= static_cast<double>(kCalls);
  report("rpc_async_per_call", samples, "us");
  distag_tensor_release(x);
}

// A remote add, a local multiplication, a backward pass through both, and the gradients.
void autograd_step(const char* name, int64_t count, int runs) {
  const auto step = [count] {
    distag_error error = DISTAG_ERROR_INIT;
    distag_context* context = nullptr;
    distag_context_create(worker, &context, &error);
    distag_tensor* a = random_tensor(count, true);
    distag_tensor* b = random_tensor(count, true);
    distag_value* args[] = {distag_tensor_as_value(a), distag_tensor_as_value(b)};
    distag_value* result = nullptr;
    distag_tensor *sum = nullptr, *product = nullptr, *loss = nullptr;
    distag_gradients* gradients = nullptr;
    distag_call(worker, context, "worker1", "add", args, 2, nullptr, &result, &error);
    distag_value_get_tensor(result, &sum, &error);
    distag_mul(sum, a, &product, &error);
    distag_sum(product, nullptr, 0, 0, &loss, &error);
    distag_backward(context, &loss, 1, nullptr, &error);
    distag_get_gradients(context, &gradients, &error);
    check(error, "step");
    if (distag_gradients_get_count(gradients) != 2) {
      std::fprintf(stderr, "autograd step: %zu gradients, not 2\n", distag_gradients_get_count(gradients));
      std::exit(1);
    }
    distag_gradients_release(gradients);
    distag_tensor_release(loss);
    distag_tensor_release(product);
    distag_value_release(result);
    distag_tensor_release(b);
    distag_tensor_release(a);
    distag_context_release(context);
  };
  report(name, timed(step, runs, 30), "us");
}

// Calls in one context, each on the result of the one before, and a backward pass through all: the time for a call.
void chain(const char* name) {
  constexpr int kCalls = 100;
  const auto step = [] {
    distag_error error = DISTAG_ERROR_INIT;
    distag_context* context = nullptr;
    distag_context_create(worker, &context, &error);
    distag_tensor* x = random_tensor(1, true);
    distag_value* last = nullptr;
    for (int i = 0; i < kCalls; ++i) {
      distag_value* args[] = {last == nullptr ? distag_tensor_as_value(x) : last};
      distag_value* result = nullptr;
      distag_call(worker, context, "worker1", "neg", args, 1, nullptr, &result, &error);
      distag_value_release(last);
      last = result;
    }
    distag_tensor* loss = nullptr;
    distag_value_get_tensor(last, &loss, &error);
    distag_backward(context, &loss, 1, nullptr, &error);
    check(error, "chain");
    distag_tensor_release(loss);
    distag_value_release(last);
    distag_tensor_release(x);
    distag_context_release(context);
  };
  std::vector<double> samples = timed(step, 30, 3);
  for (double& sample : samples) sample /= kCalls;
  report(name, samples, "us");
}

}  // namespace

distag_worker* pair_worker() { return worker; }

std::vector<Row> pair_rows() {
  return {{"rpc_latency_4B", [] { latency("rpc_latency_4B", 1, 4000, "us"); }},
          {"rpc_latency_1MB", [] { latency("rpc_latency_1MB", 1 << 18, 200, "us"); }},
          {"rpc_latency_64MB", [] { latency("rpc_latency_64MB", 1 << 24, 10, "ms"); }},
          {"rpc_lend_64MB", [] { latency("rpc_lend_64MB", 1 << 24, 10, "ms", "give_back"); }},
          {"rpc_async_per_call", async_per_call},
          {"rpc_latency_4B_paused", paused_latency},
          {"rpc_throughput_8_threads", throughput},
          {"chain_100_calls", [] { chain("chain_100_calls"); }},
          {"autograd_step_9", [] { autograd_step("autograd_step_9", 9, 1000); }},
          {"autograd_step_1MB", [] { autograd_step("autograd_step_1MB", 1 << 18, 200); }}};
}

// The rows of 64 MB get their argument back: they have no work in them but that of the way.
std::vector<Row> tcp_rows() {
  return {{"rpc_latency_4B_tcp", [] { latency("rpc_latency_4B_tcp", 1, 4000, "us"); }},
          {"chain_100_calls_tcp", [] { chain("chain_100_calls_tcp"); }},
          {"rpc_return_64MB_tcp", [] { latency("rpc_return_64MB_tcp", 1 << 24, 10, "ms", "give_back"); }}};
}

std::vector<Row> curve_rows() {
  return {{"rpc_latency_4B_curve", [] { latency("rpc_latency_4B_curve", 1, 4000, "us"); }},
          {"rpc_return_64MB_curve", [] { latency("rpc_return_64MB_curve", 1 << 24, 10, "ms", "give_back"); }}};
}

void run_pair(const std::vector<Row>& rows, const char* program, Way way) {
  char directory[] = "/tmp/distag-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) {
    std::perror("mkdtemp");
    std::exit(1);
  }
  std::string rendezvous = std::string("file://") + directory;
  char serve_flag[] = "--serve";
  std::string self = program;
  Sockets sockets = make_sockets(way);
  char* arguments[] = {self.data(), serve_flag, rendezvous.data(), sockets.bind.data(), sockets.group_key.data(),
                       nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) {
    std::perror("posix_spawn");
    std::exit(1);
  }
  worker = meet(rendezvous.c_str(), 0, sockets);
  for (const Row& row : rows) row.run();
  leave(worker);
  int status = 0;
  waitpid(child, &status, 0);
  const std::string clean = "rm -rf '" + std::string(directory) + "'";
  if (std::system(clean.c_str()) != 0) std::fprintf(stderr, "could not remove %s\n", directory);
}

int serve(const char* rendezvous, const Sockets& sockets) {
  distag_worker* served = meet(rendezvous, 1, sockets);
  distag_error error = DISTAG_ERROR_INIT;
  distag_worker_shutdown(served, DISTAG_FOREVER, nullptr, &error);
  check(error, "serve");
  distag_worker_release(served);
  return 0;
}

}  // namespace bench
