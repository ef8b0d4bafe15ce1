// Reads the header of a safetensors file, or the index of a checkpoint. Input: which, then the text; the crc at the end
// of an index is made right, so that what comes behind it is reached. What is read comes back equal from its print.
#include "base/error.h"
#include "fuzz/input.h"
#include "store/index.h"

namespace {

using namespace distag;
using fuzz::check;

// Whether it was done; else it was refused as damaged, or as something that is not read here.
template <typename Body>
bool is_read(Body&& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    check(error.status() == Status::kProtocol || error.status() == Status::kUnsupported);
    check(!error.message().empty());
    return false;
  }
}

void read_header(std::string_view text, uint64_t data_size) {
  std::vector<store::StoredTensor> tensors;
  const auto read = [&](std::string_view header) {
    tensors.clear();
    store::parse_header(header, data_size, "f", [&](const store::StoredTensor& tensor) { tensors.push_back(tensor); });
  };
  if (!is_read([&] { read(text); })) return;
  uint64_t size = 0;
  for (const store::StoredTensor& tensor : tensors) size += tensor.size();
  check(size == data_size);
  const size_t count = tensors.size();
  const std::string printed = store::print_header(tensors);
  read(std::string_view(printed).substr(8));
  check(tensors.size() == count);
}

void read_index(std::string text) {
  if (text.size() >= 20) {
    text.resize(text.size() - 20);
    text += fmt::format(",\"crc32\":\"{:08x}\"}}", store::crc32_of(0, text.data(), text.size()));
  }
  store::Index index;
  if (!is_read([&] { index = store::parse_index(text, "f"); })) return;
  const std::string printed = store::print_index(index);
  check(store::print_index(store::parse_index(printed, "f")) == printed);
  is_read([&] {
    store::value_of(index, "f", [](const store::StoredEntry&) { return Value(Tensor::empty(Dtype::kBool, {0})); });
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    read_header(text, data[0] / 2);
  } else {
    read_index(std::string(text));
  }
  return 0;
}
