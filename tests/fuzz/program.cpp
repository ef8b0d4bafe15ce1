#include "fuzz/program.h"

// Memory that is refused is NULL, as it is without a sanitizer.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1:max_allocation_size_mb=256"; }

namespace distag::fuzz {
namespace {

constexpr size_t kMostSteps = 48;
constexpr int kDeepest = 3;
constexpr const char* kTexts[] = {
    "",         "sum",          "mean",          "none",        "float64",          "adam",    "sgd", "lr",
    "momentum", "beta1",        "state",         "('x', None)", "(None,) sum('y')", "S(0), R", "x",   "\xff",
    "nobody",   "{replicated}", "[{\"x\"}, {}]", "mul"};
alignas(64) constexpr double kMemory[kMostElements] = {1, -2, 0.5};

size_t hosts = 0;

}  // namespace

bool is_refused(Kind kind, void* handle) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor* tensor = nullptr;
  distag_value* value = nullptr;
  distag_gradients* gradients = nullptr;
  int64_t number = 0;
  size_t size = 0;
  switch (kind) {
    case Kind::kTensor:
      return distag_neg(static_cast<distag_tensor*>(handle), &tensor, &err) == DISTAG_E_INVALID_ARGUMENT;
    case Kind::kValue:
      return distag_value_get_int64(static_cast<distag_value*>(handle), &number, &err) == DISTAG_E_INVALID_ARGUMENT;
    case Kind::kContext:
      return distag_get_gradients(static_cast<distag_context*>(handle), &gradients, &err) == DISTAG_E_INVALID_ARGUMENT;
    case Kind::kGradients:
      return distag_gradients_get_count(static_cast<distag_gradients*>(handle)) == 0;
    case Kind::kWorker:
      return distag_worker_copy_report(static_cast<distag_worker*>(handle), nullptr, 0, &size, &err) ==
             DISTAG_E_INVALID_ARGUMENT;
    case Kind::kRref:
      return distag_rref_get_local(static_cast<distag_rref*>(handle), &value, &err) == DISTAG_E_INVALID_ARGUMENT;
    case Kind::kFuture:
      return distag_future_wait(static_cast<distag_future*>(handle), 0, &err) == DISTAG_E_INVALID_ARGUMENT;
    default:
      return true;
  }
}

void destroy_host(void* host) {
  check(hosts-- > 0);
  delete static_cast<Host*>(host);
}

void check_nothing_left() { check(distag_get_handle_count() == 0 && hosts == 0); }

void Program::run() {
  while (!in_.empty() && steps_ < kMostSteps) go_on();
}

void Program::go_on() {
  ++steps_;
  handles_.begin_step();
  step();
  handles_.end_step();
}

distag_status Program::call_back(const Host& host, distag_tensor* lent, distag_tensor** out, distag_error* err) {
  if (handles_.depth() <= kDeepest && !in_.empty() && steps_ < kMostSteps) go_on();
  if (host.kinds % 8 == 0) return distag_error_set(err, DISTAG_E_USER + host.kinds, "refused");
  if (host.kinds % 8 == 1) return DISTAG_E_CANCELLED;
  if (out != nullptr && host.kinds % 8 > 2) distag_mul_scalar(lent, host.kinds % 4, out, nullptr);
  return DISTAG_OK;
}

const char* Program::text() { return kTexts[in_.below(std::size(kTexts))]; }

distag_dtype Program::dtype() {
  const auto code = static_cast<distag_dtype>(in_.below(20));
  return code < 12 ? 1 + code % 2 : code - 10;
}

std::vector<int64_t> Program::dims() { return in_.below(32) == 31 ? std::vector<int64_t>(20, 1) : in_.integers(4); }

Host* Program::make_host() {
  ++hosts;
  return new Host{this, in_.byte()};
}

void Program::keep(distag_tensor* tensor, bool is_own) {
  if (distag_tensor_get_count(tensor) <= kMostElements) return handles_.keep(tensor, is_own);
  distag_tensor_release(tensor);
}

void Program::keep_lent(distag_tensor* tensor) {
  if (tensor == nullptr) return;
  distag_tensor_retain(tensor);
  keep(tensor, false);
}

void Program::keep_lent(distag_value* value) {
  if (value == nullptr) return;
  distag_value_retain(value);
  handles_.keep(value, false);
}

void Program::drop() { handles_.drop(in_.byte()); }

void Program::make_tensor() {
  const uint8_t kind = in_.byte();
  const std::vector<int64_t> shape = dims();
  const std::vector<int64_t> strides = in_.integers(4);
  const distag_dtype type = dtype();
  const double number = in_.number();
  const double step = in_.number();
  const size_t size = std::min(sizeof kMemory, in_.byte() * distag_dtype_get_size(type));
  Host* const host = kind % 6 == 1 ? make_host() : nullptr;
  make<distag_tensor>([&](distag_tensor** out, distag_error* err) {
    switch (kind % 6) {
      case 0:
        return distag_tensor_create(kMemory, size, type, shape.data(), shape.size(), out, err);
      case 1:
        return distag_tensor_create_borrowed(kMemory, size, type, shape.data(),
                                             strides.size() == shape.size() ? strides.data() : nullptr, shape.size(),
                                             host, destroy_host, out, err);
      case 2:
        return distag_full(number, type, shape.data(), shape.size(), out, err);
      case 3:
        return distag_arange(0, number, step, type, out, err);
      case 4:
        return distag_zeros(type, shape.data(), shape.size(), out, err);
      default:
        return distag_randn(kind, type, shape.data(), shape.size(), out, err);
    }
  });
}

void Program::make_number_or_text() {
  const uint8_t kind = in_.byte();
  const int64_t whole = in_.integer();
  const double number = in_.number();
  const char* const words = text();
  Host* const host = kind % 6 == 5 ? make_host() : nullptr;
  make<distag_value>([&](distag_value** out, distag_error* err) {
    switch (kind % 6) {
      case 0:
        return distag_value_create_bool(static_cast<int32_t>(whole), out, err);
      case 1:
        return distag_value_create_int64(whole, out, err);
      case 2:
        return distag_value_create_float64(number, out, err);
      case 3:
        return distag_value_create_text(words, out, err);
      case 4:
        return distag_value_create_bytes(words, std::strlen(words), out, err);
      default:
        return distag_value_create_object(words, host, destroy_host, out, err);
    }
  });
}

void Program::make_list_or_map() {
  const uint8_t kind = in_.byte();
  const std::vector<int64_t> numbers = in_.integers(4);
  const std::vector<distag_value*> items = picks<distag_value>(4);
  std::vector<const char*> keys(items.size());
  for (const char*& key : keys) key = text();
  make<distag_value>([&](distag_value** out, distag_error* err) {
    switch (kind % 4) {
      case 0:
        return distag_value_create_int64_list(numbers.data(), numbers.size(), out, err);
      case 1:
        return distag_value_create_float64_list(kMemory, numbers.size(), out, err);
      case 2:
        return distag_value_create_list(items.data(), items.size(), out, err);
      default:
        return distag_value_create_map(keys.data(), items.data(), items.size(), out, err);
    }
  });
}

void Program::make_context() {
  make<distag_context>(
      [](distag_context** out, distag_error* err) { return distag_context_create(nullptr, out, err); });
}

void Program::run_pass() {
  distag_context* const context = pick<distag_context>();
  const std::vector<distag_tensor*> roots = picks<distag_tensor>(3);
  std::vector<distag_tensor*> seeds(roots.size());
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  const uint8_t kind = in_.byte();
  options.retain_graph = kind % 2;
  options.mode = kind / 2 % 4;
  if (kind > 128) {
    for (distag_tensor*& seed : seeds) seed = pick<distag_tensor>();
    options.seeds = seeds.data();
  }
  call([&](distag_error* err) { return distag_backward(context, roots.data(), roots.size(), &options, err); });
}

void Program::change_tensor() {
  const uint8_t kind = in_.byte();
  distag_tensor* const tensor = pick<distag_tensor>();
  distag_tensor* const source = pick<distag_tensor>();
  const size_t size = in_.flag() ? distag_tensor_get_size(tensor) : in_.byte();
  const double scale = in_.number();
  call([&](distag_error* err) {
    switch (kind % 6) {
      case 0:
        return distag_tensor_write(tensor, kMemory, std::min(size, sizeof kMemory), err);
      case 1:
        return distag_tensor_assign(tensor, source, err);
      case 2:
        return distag_tensor_add_scaled(tensor, source, scale, err);
      default:
        return distag_tensor_set_requires_grad(tensor, kind % 6 - 3, err);
    }
  });
}

// Ops whose arrays and numbers the C interface reads by itself.
void Program::apply() {
  const uint8_t kind = in_.byte();
  distag_tensor* const a = pick<distag_tensor>();
  distag_tensor* const b = pick<distag_tensor>();
  const std::vector<int64_t> items = in_.integers(4);
  int64_t n[6];
  for (int64_t& number : n) number = in_.integer();
  make<distag_tensor>([&](distag_tensor** out, distag_error* err) {
    switch (kind % 10) {
      case 0:
        return distag_add(a, b, out, err);
      case 1:
        return distag_mul(a, b, out, err);
      case 2:
        return distag_matmul(a, b, out, err);
      case 3:
        return distag_sum(a, items.data(), items.size(), static_cast<int32_t>(n[0]), out, err);
      case 4:
        return distag_reshape(a, items.data(), items.size(), out, err);
      case 5:
        return distag_slice(a, n[0], n[1], n[2], n[3], out, err);
      case 6:
        return distag_conv2d(a, b, nullptr, n, n + 2, out, err);
      case 7:
        return distag_max_pool2d(a, n, n + 2, n + 4, out, err);
      case 8:
        return distag_cast(a, static_cast<distag_dtype>(n[0]), out, err);
      default:
        return distag_tensor_create_snapshot(a, out, err);
    }
  });
}

}  // namespace distag::fuzz
