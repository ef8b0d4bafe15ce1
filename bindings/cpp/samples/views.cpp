// Math of xtensor and Eigen on the memory of distag's tensors, and back, without a copy.
//
//   c++ -std=c++17 views.cpp $(pkg-config --cflags --libs distag eigen3 xtensor) -o views && ./views
//
// A worker offers "normalize": its rows get the length 1, by Eigen. The caller makes its tensor of the memory of a
// container of xtensor, and sums the rows of the answer by xtensor.
#include <Eigen/Dense>
#include <cstdio>
#include <distag/xtensor.hpp>
#include <xtensor/xmath.hpp>

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// The elements of a view as a matrix of Eigen.
Eigen::Map<const matrix> as_eigen(const distag::view<float>& view) {
  return {view.data(), view.shape()[0], view.shape()[1]};
}

distag::tensor normalize(const distag::tensor& x) {
  const auto view = x.view<float>();
  std::vector<float> rows(view.size());
  Eigen::Map<matrix>(rows.data(), view.shape()[0], view.shape()[1]) = as_eigen(view).rowwise().normalized();
  return distag::tensor::take(std::move(rows), view.shape());
}

int main() {
  distag::worker_options options;
  options.world_size = 1;
  options.rendezvous = "inproc://views";
  const distag::worker worker(options);
  worker.register_function("normalize", normalize);
  worker.start();

  xt::xtensor<float, 2> numbers{{3, 4}, {0, 8}, {6, 0}};
  const float* memory = numbers.data();
  const distag::tensor x = distag::from_xtensor(std::move(numbers));
  std::printf("bytes copied into the tensor and out of it: %d\n",
              distag::as_xtensor<float>(x).data() == memory ? 0 : 24);

  const auto rows = distag::as_xtensor<float, 2>(worker.call<distag::tensor>("worker0", "normalize", {x}));
  const xt::xtensor<float, 1> sums = xt::sum(rows, {1});
  std::printf("rows of length 1, summed: %.1f %.1f %.1f\n", static_cast<double>(sums(0)), static_cast<double>(sums(1)),
              static_cast<double>(sums(2)));
  worker.shutdown();
}
