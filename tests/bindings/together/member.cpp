// A member of the group in C++: see README.md. usage: member RANK SIZE FOLDER DIGITS FIRST STEPS
#include <cstdio>
#include <distag.hpp>
#include <fstream>

using distag::tensor;
using namespace std::chrono_literals;

namespace {

constexpr int kBatch = 32, kPixels = 64, kLines = 1600;

std::uint32_t add_bytes(std::uint32_t crc, const tensor& given) {
  const auto view = given.view<float>();
  const auto* bytes = reinterpret_cast<const unsigned char*>(view.data());
  for (std::size_t i = 0; i < view.size() * sizeof(float); ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320u & (0 - (crc & 1)));
  }
  return crc;
}

struct digits {
  std::vector<float> pixels;
  std::vector<std::int64_t> classes;

  explicit digits(const char* path) {
    std::ifstream file(path);
    for (int number, i = 0; file >> number; file.ignore(1), i = (i + 1) % (kPixels + 1)) {
      if (i < kPixels) {
        pixels.push_back(static_cast<float>(number) / 16);
      } else {
        classes.push_back(number);
      }
    }
  }
  tensor images(int begin) const {
    return tensor::copy(pixels.data() + begin * kPixels, kBatch * kPixels, {kBatch, kPixels});
  }
  tensor targets(int begin) const { return tensor::copy(classes.data() + begin, kBatch, {kBatch}); }
};

std::string name_of(int rank) { return "layer" + std::to_string(rank); }

void train_step(const distag::worker& worker, const digits& data, int turn, int number, int begin) {
  const distag::context context(worker);
  tensor x = data.images(begin);
  const int size = worker.world_size();
  for (int i = 0; i < size; ++i) x = context.call<tensor>(name_of(i), "forward", {x});
  const tensor loss = distag::cross_entropy(x, data.targets(begin));
  context.backward(loss);
  std::uint32_t word = 0;
  std::memcpy(&word, loss.view<float>().data(), sizeof word);
  std::string sums;
  for (int i = 0; i < size; ++i) {
    sums += " " + std::to_string(context.call<std::int64_t>(name_of(i), "step"));
  }
  std::printf("%d %d %08x%s\n", turn, number, word, sums.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return std::fprintf(stderr, "usage: %s RANK SIZE FOLDER DIGITS FIRST STEPS\n", argv[0]), 2;
  const int rank = std::atoi(argv[1]), size = std::atoi(argv[2]), first = std::atoi(argv[5]),
            steps = std::atoi(argv[6]);
  const digits data(argv[4]);
  const tensor weight = distag::randn(100 + rank, {rank == size - 1 ? 10 : 32, rank == 0 ? kPixels : 32}) * 0.2;
  const tensor bias = distag::zeros({rank == size - 1 ? 10 : 32});
  weight.requires_grad(true);
  bias.requires_grad(true);
  distag::optimizer sgd;
  distag::worker worker;  // leaves after a failure, without waiting for others
  try {
    distag::worker_options options;
    options.name = name_of(rank);
    options.rank = rank;
    options.world_size = size;
    options.rendezvous = std::string("file://") + argv[3];
    worker = distag::worker(options);
    sgd = distag::optimizer(worker, "sgd", {weight, bias}, {{"lr", 0.1}, {"momentum", 0.9}});
    worker.register_function("forward", [&](const tensor& x) {
      const tensor y = x.linear(weight, bias);
      return rank == size - 1 ? y : y.relu();
    });
    worker.register_function("step", [&](const distag::context& context) {
      sgd.step(context);
      const distag::gradients gradients = context.gradients();
      std::uint32_t crc = ~0u;
      for (const tensor& each : {weight, gradients[weight], bias, gradients[bias]}) crc = add_bytes(crc, each);
      return ~crc;
    });
    worker.start(30s);
    for (int turn = 0; turn < size; ++turn) {
      for (int s = 0; (first + turn) % size == rank && s < steps; ++s) {
        train_step(worker, data, turn, s, static_cast<int>(std::int64_t{kBatch} * (steps * turn + s) % kLines));
      }
      worker.all_gather(nullptr, {}, 30s);
    }
    worker.shutdown(30s);
  } catch (const distag::error& failure) {
    std::printf("failed %d %s\n", static_cast<int>(failure.code()), failure.what());
    std::fflush(stdout);
    while (std::getchar() != EOF) continue;
    return 3;
  }
}
