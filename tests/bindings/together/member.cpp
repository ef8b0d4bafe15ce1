// A member of the group in C++: see README.md. usage: member RANK SIZE RENDEZVOUS DIGITS FIRST STEPS
#include <cstdio>
#include <distag.hpp>
#include <fstream>
#include <iostream>

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

// Values that are sent there and back.
using parcel =
    std::tuple<std::vector<std::int64_t>, std::map<std::string, distag::value>, std::string, distag::bytes, tensor>;

parcel make_parcel(int rank, int number) {
  distag::bytes bytes(1 << 20);
  for (int i = 0; i < 1 << 20; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<std::byte>(i + 31 * rank + number);
  return {{rank, number, 9007199254740993},
          {{"from", name_of(rank)}, {"number", number}},
          "Grüße aus Schicht " + std::to_string(rank) + ", Nr. " + std::to_string(number) + ": äöüß €",
          std::move(bytes),
          distag::randn(1000 + 100 * rank + number, {8, 8})};
}

bool is_unchanged(const parcel& found, const parcel& sent) {
  const auto &map = std::get<1>(found), &sent_map = std::get<1>(sent);
  const auto view = std::get<4>(found).view<float>(), sent_view = std::get<4>(sent).view<float>();
  return std::get<0>(found) == std::get<0>(sent) && map.size() == 2 &&
         map.at("from").as<std::string>() == sent_map.at("from").as<std::string>() &&
         map.at("number").as<int>() == sent_map.at("number").as<int>() && std::get<2>(found) == std::get<2>(sent) &&
         std::get<3>(found) == std::get<3>(sent) && std::get<4>(found).shape() == std::get<4>(sent).shape() &&
         std::equal(view.begin(), view.end(), sent_view.begin(), sent_view.end());
}

void exchange(const distag::worker& worker, int rank, int size, int count) {
  std::vector<distag::future<parcel>> calls;
  for (int i = 0; i < count * size; ++i) {
    if (i % size != rank) calls.push_back(worker.call_async<parcel>(name_of(i % size), "echo", {make_parcel(rank, i)}));
  }
  int unchanged = 0;
  for (auto& each : calls) {
    const parcel found = each.get();
    unchanged += is_unchanged(found, make_parcel(rank, static_cast<int>(std::get<0>(found).at(1))));
  }
  std::cout << "exchanged " << unchanged << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return std::fprintf(stderr, "usage: %s RANK SIZE RENDEZVOUS DIGITS FIRST STEPS\n", argv[0]), 2;
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
    options.rendezvous = argv[3];
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
    worker.register_function("echo", [](const distag::value& given) { return given; });
    worker.start(30s);
    if (first < 0) {
      exchange(worker, rank, size, steps);
      while (std::cin.get() != EOF) continue;
    }
    for (int turn = 0; first >= 0 && turn < size; ++turn) {
      for (int s = 0; (first + turn) % size == rank && s < steps; ++s) {
        train_step(worker, data, turn, s, static_cast<int>(std::int64_t{kBatch} * (steps * turn + s) % kLines));
      }
      worker.all_gather(nullptr, {}, 30s);
    }
    worker.shutdown(30s);
  } catch (const distag::error& failure) {
    std::printf("failed %d %s\n", static_cast<int>(failure.code()), failure.what());
    std::fflush(stdout);
    for (int count = 0; std::cin >> count;) {
      for (int s = 0; s < count; ++s) train_step(worker, data, 0, s, kBatch * s);
    }
    return 3;
  }
}
