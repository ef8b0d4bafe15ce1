// Runs a fuzzer without libFuzzer: each file of the corpus, then seeded mutations of it.
// usage: <name>_fuzz [CORPUS [MUTATIONS]]

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr int kMutationsPerFile = 2000;  // unless given

std::vector<Bytes> read_corpus(const std::filesystem::path& folder) {
  std::vector<Bytes> corpus{Bytes{}, Bytes(64)};
  if (!std::filesystem::is_directory(folder)) {
    return corpus;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// A few bytes set, and often the end cut off or made longer.
Bytes mutate(Bytes bytes, std::mt19937& random) {
  const unsigned changes = random() % 8;
  for (unsigned i = 0; i < changes && !bytes.empty(); ++i) {
    bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
  }
  if (random() % 4 == 0) {
    bytes.resize(random() % (bytes.size() + 16));
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Bytes> corpus = read_corpus(argc > 1 ? argv[1] : "");
  const int mutations = argc > 2 ? std::atoi(argv[2]) : kMutationsPerFile;
  std::mt19937 random(1);
  for (const Bytes& original : corpus) {
    LLVMFuzzerTestOneInput(original.data(), original.size());
    for (int i = 0; i < mutations; ++i) {
      const Bytes bytes = mutate(original, random);
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
  }
  std::printf("%zu inputs, %d mutations of each\n", corpus.size(), mutations);
  return 0;
}
