// An ONNX model cut in two over two processes: OpenCV's cv::dnn runs each half, distag carries the tensors between.
//
//   distag run -n 2 ./opencv_halves
//
// Rank 0, "camera", has the images and the first half; rank 1, "server", offers "classify", which runs the other. Each
// half is a file of ONNX in memory, which the sample writes by itself. distag computes the same model, for comparison.
#include <cstdio>
#include <distag.hpp>
#include <mutex>
#include <opencv2/dnn.hpp>

namespace {

constexpr int kPixels = 64, kHidden = 32, kClasses = 10, kImages = 16;

// ---- a half as a file of ONNX: the messages of onnx.proto that it needs ----

class message {
 public:
  message& number(int field, std::uint64_t value) { return varint(static_cast<unsigned>(field) << 3).varint(value); }
  message& data(int field, const std::string& value) {
    varint((static_cast<unsigned>(field) << 3) | 2).varint(value.size());
    bytes_ += value;
    return *this;
  }
  message& nested(int field, const message& value) { return data(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  message& varint(std::uint64_t value) {
    for (; value > 127; value >>= 7) bytes_ += static_cast<char>((value & 127) | 128);
    bytes_ += static_cast<char>(value);
    return *this;
  }
  std::string bytes_;
};

message onnx_tensor(const char* name, const distag::tensor& x) {
  message made;
  for (std::int64_t size : x.shape()) made.number(1, static_cast<std::uint64_t>(size));
  const auto view = x.view<float>();
  const std::string raw(reinterpret_cast<const char*>(view.data()), view.size() * sizeof(float));
  return made.number(2, 1).data(8, name).data(9, raw);
}

message onnx_value(const char* name, int columns) {
  message shape;
  for (int size : {kImages, columns}) shape.nested(1, message().number(1, static_cast<std::uint64_t>(size)));
  return message().data(1, name).nested(2, message().nested(1, message().number(1, 1).nested(2, shape)));
}

// y = x weight^T + bias, and relu if wanted.
std::string onnx_layer(const distag::tensor& weight, const distag::tensor& bias, bool has_relu) {
  const char* sum = has_relu ? "sum" : "y";
  const message transposed = message().data(1, "transB").number(3, 1).number(20, 2);
  message graph;
  graph.nested(1, message().data(1, "x").data(1, "w").data(1, "b").data(2, sum).data(3, "gemm").data(4, "Gemm").nested(
                      5, transposed));
  if (has_relu) graph.nested(1, message().data(1, sum).data(2, "y").data(3, "relu").data(4, "Relu"));
  graph.data(2, "half").nested(5, onnx_tensor("w", weight)).nested(5, onnx_tensor("b", bias));
  graph.nested(11, onnx_value("x", static_cast<int>(weight.shape()[1])));
  graph.nested(12, onnx_value("y", static_cast<int>(weight.shape()[0])));
  return message().number(1, 7).nested(7, graph).nested(8, message().data(1, "").number(2, 13)).bytes();
}

// ---- a half that runs ----

class half {
 public:
  explicit half(const std::string& onnx) : net_(cv::dnn::readNetFromONNX(onnx.data(), onnx.size())) {}

  // The memory of the tensor goes to OpenCV, and that of its answer to distag, without a copy.
  distag::tensor run(const distag::tensor& x) {
    const std::lock_guard<std::mutex> lock(mutex_);  // a net computes one image batch at a time
    const auto view = x.view<float>();
    const int rows = static_cast<int>(view.shape()[0]), columns = static_cast<int>(view.shape()[1]);
    net_.setInput(cv::Mat(rows, columns, CV_32F, const_cast<float*>(view.data())));
    const auto answer = std::make_shared<cv::Mat>(net_.forward().clone());  // the net writes over its own
    return distag::tensor::borrow(answer->ptr<float>(), answer->total(), {answer->rows, answer->cols}, answer);
  }

 private:
  std::mutex mutex_;
  cv::dnn::Net net_;
};

struct model {
  distag::tensor w1 = distag::randn(1, {kHidden, kPixels}) * 0.2, b1 = distag::randn(2, {kHidden});
  distag::tensor w2 = distag::randn(3, {kClasses, kHidden}) * 0.2, b2 = distag::randn(4, {kClasses});
};

bool classify(const distag::worker& worker, const model& weights) {
  half first(onnx_layer(weights.w1, weights.b1, true));
  const distag::tensor images = distag::rand(5, {kImages, kPixels});
  const auto found = worker.call<distag::tensor>("server", "classify", {first.run(images)});
  const distag::tensor expected = images.linear(weights.w1, weights.b1).relu().linear(weights.w2, weights.b2);
  const double difference = (found - expected).abs().max().item();
  const bool is_same = found.argmax(1).eq(expected.argmax(1)).cast(distag::dtype::float32).mean().item() == 1;
  std::printf("%d images classified by 2 processes, %s as by distag (%.1e)\n", kImages,
              is_same && difference < 1e-4 ? "the same" : "other", difference);
  return is_same && difference < 1e-4;
}

}  // namespace

int main(int, char** argv) {
  distag::status missing;
  const int rank = distag::get_environment(missing).rank;
  if (rank < 0 || rank > 1)
    return std::fprintf(stderr, "usage: distag run -n 2 %s\n%s\n", argv[0], missing.message()), 2;
  cv::setNumThreads(1);
  try {
    const model weights;
    half second(onnx_layer(weights.w2, weights.b2, false));
    distag::worker_options options;  // rank, size and address come from distag run
    options.name = rank == 0 ? "camera" : "server";
    const distag::worker worker(options);
    worker.register_function("classify", [&](const distag::tensor& x) { return second.run(x); });
    worker.start();
    const bool is_right = rank != 0 || classify(worker, weights);
    worker.shutdown();
    return is_right ? 0 : 1;
  } catch (const std::exception& failure) {
    return std::fprintf(stderr, "rank %d: %s\n", rank, failure.what()), 1;
  }
}
