#include <distag.hpp>

/* A product by a worker that calls itself, from C++. */
int main() {
  distag::worker_options options;
  options.world_size = 1;
  options.rendezvous = "inproc://consumer";
  const distag::worker worker(options);
  worker.register_function("square", [](const distag::tensor &x) { return x.matmul(x); });
  worker.start();
  const auto square = worker.call<distag::tensor>("worker0", "square", {distag::full(2, {3, 3})});
  return square.view<float>()[8] == 12 ? 0 : 1;
}
