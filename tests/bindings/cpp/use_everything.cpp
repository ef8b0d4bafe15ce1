// Instantiates the templates of the binding with all kinds of arguments: it has to compile.
#include <distag.hpp>

#include <cstdio>

namespace {

struct counter {
  int number = 0;
};

struct scale {
  double by;
  distag::tensor forward(const distag::tensor& x) { return x * by; }
  distag::tensor backward(const distag::tensor& gradient) { return gradient * by; }
};

void offer(const distag::worker& worker) {
  using namespace distag;
  worker.register_function("dense", [](tensor x, std::int64_t k) { return x * static_cast<double>(k); });
  worker.register_function("make", [] { return std::make_unique<counter>(); });
  worker.register_function("count", [](counter& used) { return ++used.number; });
  worker.register_function("scale", [](const tensor& x) { return apply_custom("scale", scale{3}, x); });
  worker.register_function("who", [](invocation& call, std::optional<std::string> more) {
    return std::string(call.caller()) + more.value_or("");
  });
  worker.register_function("later", [](const invocation& call) {
    return call.call_async<std::string>("worker0", "who", {"x"}).then([](const std::string& text) { return text; });
  });
  worker.register_function("all", [](bool a, std::uint8_t b, float c, const bytes& d, std::vector<tensor> e,
                                     std::map<std::string, double> f, rref g, value h, context i, status& err) {
    err.set(errc::user, "never");
    return std::make_tuple(a, b, c, d, e, f, g, h, static_cast<bool>(i));
  });
}

}  // namespace

void use_everything();
void use_everything() {
  using namespace std::chrono_literals;
  distag::worker_options options;
  options.rank = 1;
  distag::worker worker(options);
  offer(worker);
  worker.start(120s);
  const distag::tensor x = distag::tensor::of({1.0f, 2.0f}).requires_grad(true);
  const distag::context context(worker);
  const auto y = context.call<distag::tensor>("worker1", "dense", {x, 3}, {120s, "label"});
  distag::backward_options how;
  how.retain_graph = true;
  context.backward({y, y}, how);
  context.backward_async(y).wait(120s);
  for (float each : context.gradient(x).view<float>()) std::printf("%g\n", static_cast<double>(each));
  const distag::rref made = worker.remote("worker1", "make");
  made.fetch_async<distag::value>(context).on_done([](const distag::future<>& done) { done.is_ready(); });
  const distag::optimizer sgd(worker, "sgd", {x, made}, {{"lr", 0.1}, {"momentum", 0.9}});
  sgd.step(context);
  sgd.step_async(context).get();
  const std::vector<distag::value> dynamic{x, made, 3, "text", nullptr};
  worker.call("worker1", "all", dynamic);
  worker.call("worker1", "all", {dynamic[0]});
  worker.call("worker1", "all", {distag::value(3), std::pair(1, 2.0)});
  distag::apply("clamp", {x}, {{"min", 0.5}});
  worker.shutdown();
}
