// distag_bench --ops ops.json [--check | --bits | NAME ...]: each op of the library at 64, 64 Ki and 4 Mi elements,
// forward alone and forward with backward, as JSON lines: microseconds of CPU time for one call. --check runs each
// once, small. --bits prints a hash of the results and of the gradients instead, by which two trees or machines are
// compared.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "bench/harness.h"

namespace bench {

namespace {

using Json = nlohmann::json;

constexpr int64_t kSizes[] = {64, 64 << 10, 4 << 20};
constexpr double kLeastSeconds = 0.004;  // of a sample, so that the clock's step does not show
constexpr int kSamples = 3;

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int64_t number_of(const std::string& word, int64_t n) {
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(n))));
  if (word == "n") return n;
  if (word == "s") return side;
  if (word == "h") return side / 2;
  return std::stoll(word);
}

// An op with its inputs, ready to be applied.
class Case {
 public:
  Case(const Json& given, int64_t n) : op_(given.at("op")), outputs_(given.value("outputs", size_t{1})) {
    for (const std::string input : given.at("inputs")) inputs_.push_back(make_input(input, n));
    attributes_ = make_attributes(given.value("attributes", Json::object()), n);
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
  ~Case() {
    for (auto* tensors : {&inputs_, &seeds_}) {
      for (distag_tensor* tensor : *tensors) distag_tensor_release(tensor);
    }
    distag_value_release(attributes_);
  }

  bool needs_gradient() const { return needs_gradient_; }

  void forward() {
    std::vector<distag_tensor*> results = apply(DISTAG_APPLY_NO_GRAD);
    for (distag_tensor* result : results) distag_tensor_release(result);
  }

  // FNV-1a over the elements of the results and then of the gradients.
  uint64_t bits() {
    uint64_t hash = 0xCBF29CE484222325u;
    std::vector<distag_tensor*> results = apply(DISTAG_APPLY_NO_GRAD);
    for (distag_tensor* result : results) {
      add_bits(hash, result);
      distag_tensor_release(result);
    }
    if (!needs_gradient_) return hash;
    forward_and_backward([&](distag_gradients* gradients) {
      for (distag_tensor* input : inputs_) {
        distag_tensor* gradient = distag_gradients_find(gradients, input);
        if (gradient != nullptr) add_bits(hash, gradient);
      }
    });
    return hash;
  }

  void forward_and_backward() {
    forward_and_backward([](distag_gradients*) {});
  }

 private:
  template <typename Use>
  void forward_and_backward(Use use) {
    std::vector<distag_tensor*> results = apply(0);
    std::erase_if(results, [](distag_tensor* result) {  // indices have no gradient
      const bool is_index = distag_tensor_get_dtype(result) == DISTAG_INT64;
      if (is_index) distag_tensor_release(result);
      return is_index;
    });
    if (seeds_.empty()) seeds_ = ones_like(results);
    distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
    options.seeds = seeds_.data();
    distag_context* context = nullptr;
    distag_context_create(nullptr, &context, &error_);
    distag_backward(context, results.data(), results.size(), &options, &error_);
    distag_gradients* gradients = nullptr;
    distag_get_gradients(context, &gradients, &error_);
    check(error_, op_.c_str());
    use(gradients);
    distag_gradients_release(gradients);
    for (distag_tensor* result : results) distag_tensor_release(result);
    distag_context_release(context);
  }

  void add_bits(uint64_t& hash, distag_tensor* tensor) {
    std::vector<unsigned char> bytes(distag_tensor_get_size(tensor));
    distag_tensor_copy_data(tensor, bytes.data(), bytes.size(), &error_);
    check(error_, op_.c_str());
    for (unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001B3u;
  }

  std::vector<distag_tensor*> apply(uint32_t flags) {
    std::vector<distag_tensor*> results(outputs_);
    distag_apply(op_.c_str(), inputs_.data(), inputs_.size(), attributes_, flags, results.data(), outputs_, &error_);
    check(error_, op_.c_str());
    return results;
  }

  std::vector<distag_tensor*> ones_like(const std::vector<distag_tensor*>& results) {
    std::vector<distag_tensor*> made(results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      distag_ones(distag_tensor_get_dtype(results[i]), distag_tensor_get_shape(results[i]),
                  distag_tensor_get_ndim(results[i]), &made[i], &error_);
    }
    check(error_, "ones");
    return made;
  }

  distag_tensor* make_input(const std::string& text, int64_t n) {
    std::istringstream words(text);
    std::string kind;
    words >> kind;
    std::vector<int64_t> shape;
    for (std::string word; words >> word;) shape.push_back(number_of(word, n));
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    const size_t separator = kind.find(':');
    if (separator != std::string::npos) return index(count, number_of(kind.substr(separator + 1), n), shape);
    if (kind == "bool") return bools(count, shape);
    return numbers(kind, shape);
  }

  distag_tensor* numbers(const std::string& kind, const std::vector<int64_t>& shape) {
    const bool is_positive = kind == "positive";
    distag_tensor *uniform = nullptr, *wide = nullptr, *made = nullptr;
    distag_rand(inputs_.size() + 1, DISTAG_FLOAT32, shape.data(), shape.size(), &uniform, &error_);
    distag_mul_scalar(uniform, is_positive ? 1 : 4, &wide, &error_);
    distag_add_scalar(wide, is_positive ? 0.5 : -2, &made, &error_);
    check(error_, kind.c_str());
    distag_tensor_release(uniform);
    distag_tensor_release(wide);
    if (kind != "fixed") {
      needs_gradient_ = true;
      distag_tensor_set_requires_grad(made, 1, &error_);
    }
    return made;
  }

  template <typename T>
  distag_tensor* created(const std::vector<T>& items, distag_dtype dtype, const std::vector<int64_t>& shape) {
    distag_tensor* made = nullptr;
    distag_tensor_create(items.data(), items.size() * sizeof(T), dtype, shape.data(), shape.size(), &made, &error_);
    check(error_, "input");
    return made;
  }
  distag_tensor* index(int64_t count, int64_t below, const std::vector<int64_t>& shape) {
    std::vector<int64_t> items(static_cast<size_t>(count));
    for (size_t i = 0; i < items.size(); ++i) items[i] = static_cast<int64_t>(i * 7919) % below;
    return created(items, DISTAG_INT64, shape);
  }
  distag_tensor* bools(int64_t count, const std::vector<int64_t>& shape) {
    std::vector<uint8_t> items(static_cast<size_t>(count));
    for (size_t i = 0; i < items.size(); ++i) items[i] = (i * 7919 >> 3) % 2;
    return created(items, DISTAG_BOOL, shape);
  }

  distag_value* make_attributes(const Json& given, int64_t n) {
    std::vector<std::string> names;
    std::vector<distag_value*> items;
    for (const auto& [name, item] : given.items()) {
      names.push_back(name);
      items.push_back(make_attribute(item, n));
    }
    std::vector<const char*> keys;
    for (const std::string& name : names) keys.push_back(name.c_str());
    distag_value* map = nullptr;
    distag_value_create_map(keys.data(), items.data(), items.size(), &map, &error_);
    check(error_, "attributes");
    for (distag_value* item : items) distag_value_release(item);
    return map;
  }

  // A string is a size in terms of n, or a text that is marked as one.
  distag_value* make_attribute(const Json& item, int64_t n) {
    constexpr std::string_view kText = "text ";
    const auto number = [n](const Json& one) {
      return one.is_string() ? number_of(one.get<std::string>(), n) : one.get<int64_t>();
    };
    distag_value* made = nullptr;
    if (item.is_array()) {
      std::vector<int64_t> list;
      for (const Json& one : item) list.push_back(number(one));
      distag_value_create_int64_list(list.data(), list.size(), &made, &error_);
    } else if (item.is_boolean()) {
      distag_value_create_bool(item.get<bool>(), &made, &error_);
    } else if (item.is_string() && item.get<std::string>().starts_with(kText)) {
      distag_value_create_text(item.get<std::string>().c_str() + kText.size(), &made, &error_);
    } else if (item.is_number_float()) {
      distag_value_create_float64(item.get<double>(), &made, &error_);
    } else {
      distag_value_create_int64(number(item), &made, &error_);
    }
    return made;
  }

  distag_error error_ = DISTAG_ERROR_INIT;
  std::string op_;
  size_t outputs_;
  bool needs_gradient_ = false;
  std::vector<distag_tensor*> inputs_;
  std::vector<distag_tensor*> seeds_;
  distag_value* attributes_ = nullptr;
};

// Microseconds of CPU time for one call: the least of the samples.
template <typename Run>
double measured(Run run) {
  run();
  double best = HUGE_VAL;
  int64_t calls = 1;
  for (int sample = 0; sample < kSamples;) {
    const double start = cpu_seconds();
    for (int64_t i = 0; i < calls; ++i) run();
    const double seconds = cpu_seconds() - start;
    if (seconds < kLeastSeconds) {
      calls *= seconds < kLeastSeconds / 8 ? 8 : 2;
      continue;
    }
    best = std::min(best, seconds / static_cast<double>(calls));
    ++sample;
  }
  return best * 1e6;
}

void check_all_ops_have_cases(const Json& cases) {
  std::set<std::string> known;
  for (const Json& one : cases) known.insert(one.at("op"));
  for (size_t i = 0; i < distag_get_op_count(); ++i) {
    distag_op_info info = DISTAG_OP_INFO_INIT;
    distag_get_op(i, &info, nullptr);
    if (known.count(info.name) == 0) give_up(std::string("ops.json has no case of ") + info.name + ": add one");
  }
}

}  // namespace

int run_ops(int count, char** words) {
  std::ifstream file(words[0]);
  const Json cases = Json::parse(file).at("cases");
  check_all_ops_have_cases(cases);
  const std::vector<std::string> wanted(words + 1, words + count);
  const bool only_checks = wanted == std::vector<std::string>{"--check"};
  const bool gives_bits = wanted == std::vector<std::string>{"--bits"};
  for (const Json& one : cases) {
    const std::string name = one.value("name", one.at("op").get<std::string>());
    if (!only_checks && !gives_bits && !wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end())
      continue;
    for (int64_t n : kSizes) {
      Case tried(one, n);
      if (only_checks) {
        tried.forward();
        if (tried.needs_gradient()) tried.forward_and_backward();
        break;
      }
      if (gives_bits) {
        std::printf("%s %" PRId64 " %016" PRIx64 "\n", name.c_str(), n, tried.bits());
        continue;
      }
      Json line{{"name", name}, {"n", n}, {"forward", measured([&] { tried.forward(); })}};
      if (tried.needs_gradient()) line["both"] = measured([&] { tried.forward_and_backward(); });
      std::puts(line.dump().c_str());
      std::fflush(stdout);
    }
  }
  if (only_checks) std::printf("%zu cases of %zu ops\n", cases.size(), distag_get_op_count());
  return 0;
}

}  // namespace bench
