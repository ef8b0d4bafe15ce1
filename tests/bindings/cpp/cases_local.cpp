// Cases within one process, without a worker.
#include "support.h"

namespace {

std::vector<std::int64_t> ints_of(const json& given, const char* key, std::vector<std::int64_t> fallback) {
  return given.contains(key) ? given[key].get<std::vector<std::int64_t>>() : fallback;
}
std::string text_of(const json& given, const char* key, const char* fallback) { return given.value(key, fallback); }
distag::dtype dtype_of(const json& given, const char* key) { return dtype_named(given.value(key, "float32")); }
template <class T>
T number_of(const json& given, const char* key, T fallback) {
  return given.contains(key) ? given[key].get<T>() : fallback;
}

std::optional<std::int64_t> optional_of(const json& given, const char* key) {
  return given.contains(key) ? std::optional(given[key].get<std::int64_t>()) : std::nullopt;
}

#include "op_calls.inc"

void every_dtype(const json& given) {
  for (const json& each : given["tensors"]) {
    const auto shape = each["shape"].get<std::vector<std::int64_t>>();
    const std::string name = each["dtype"];
    distag::tensor made;
    if (name == "int64") {  // beyond what a double holds
      const auto data = each["data"].get<std::vector<std::int64_t>>();
      made = distag::tensor::of(data, shape);
      same(made.to_vector<std::int64_t>() == data, true);
    } else if (name == "float32") {
      const auto data = each["data"].get<std::vector<float>>();
      made = distag::tensor::of(data, shape);
      same(made.to_vector<float>() == data, true);
    } else if (name == "float64") {
      const auto data = each["data"].get<std::vector<double>>();
      made = distag::tensor::of(data, shape);
      same(made.to_vector<double>() == data, true);
    } else {
      made = distag::tensor::of({true, false, true}, shape);
      near(made, each["data"]);
      same(made.view<bool>()[0], true);
    }
    same(made.dtype() == dtype_named(name), true);
    same(made.shape() == shape, true);
  }
}

void shapes(const json& given) {
  const auto empty_shape = given["empty_shape"].get<std::vector<std::int64_t>>();
  const distag::tensor empty = distag::zeros(empty_shape);
  same(empty.shape() == empty_shape, true);
  same(empty.count(), 0u);
  same(empty.view<float>().empty(), true);
  const distag::tensor scalar = distag::tensor::of(given["scalar"].get<double>());
  same(scalar.item(), given["scalar"].get<double>());
  same(scalar.ndim(), 0u);
  const distag::tensor matrix = tensor_of(given["matrix"]);
  near(matrix.transpose(0, 1), given["transposed"]);
  const auto view = matrix.transpose(0, 1).view<float>();  // strided, so it is copied
  near(view.data(), view.size(), flat(given["transposed"]));
  near(matrix.slice(1, 0, 3, 2), given["every_second_column"]);
}

// Checks a line of the reference numbers: by the name of the op, forward and backward.
void check_op(const json& given, const json& line, const json& attributes) {
  std::vector<distag::tensor> inputs;
  const json wanted = line.value("grad_inputs", json::array());
  bool has_grad = false;
  for (std::size_t i = 0; i < line["inputs"].size(); ++i) {
    inputs.push_back(tensor_of(line["inputs"][i]));
    if (i < wanted.size() && !wanted[i].is_null() && inputs[i].dtype() == distag::dtype::float64) {
      inputs[i].requires_grad(true);
      has_grad = true;
    }
  }
  std::vector<std::vector<std::int64_t>> lists;
  std::vector<std::string> texts;
  lists.reserve(attributes.size());
  texts.reserve(attributes.size());
  std::vector<distag::attribute> passed;
  for (const auto& [key, item] : attributes.items()) {
    const char* name = key.c_str();
    if (item.is_array()) {
      passed.emplace_back(name, distag::ints(lists.emplace_back(item.get<std::vector<std::int64_t>>())));
    } else if (item.is_string()) {
      passed.emplace_back(name, texts.emplace_back(item.get<std::string>()).c_str());
    } else if (item.is_boolean()) {
      passed.emplace_back(name, item.get<bool>());
    } else if (item.is_number_integer()) {
      passed.emplace_back(name, item.get<std::int64_t>());
    } else {
      passed.emplace_back(name, item.get<double>());
    }
  }
  const std::string op = line["op"];
  const auto outputs = distag::apply(op.c_str(), inputs, passed, line["outputs"].size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    same(outputs[i].shape() == line["outputs"][i]["shape"].get<std::vector<std::int64_t>>(), true, "shape");
    near(outputs[i], line["outputs"][i]["data"], given["absolute"], given["relative"]);
  }
  if (!has_grad) return;
  const distag::context context = distag::context::local();
  distag::backward_options options;
  for (const json& seed : line["grad_outputs"]) options.seeds.push_back(tensor_of(seed));
  context.backward(outputs, options);
  const distag::gradients gradients = context.gradients();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] && inputs[i].requires_grad()) {
      near(gradients[inputs[i]], wanted[i]["data"], given["absolute"], given["relative"]);
    }
  }
}

void every_op(const json& given) {
  const auto absent = given["not_in_the_library"].get<std::set<std::string>>();
  std::set<std::string> seen;
  for (const json& line : read_json(given["file"])) {
    if (absent.count(line["op"]) != 0) continue;
    json attributes = json::object();
    for (const auto& [key, item] : line["attributes"].items()) {
      if (!item.is_null()) attributes[key] = item;
    }
    check_op(given, line, attributes);
    std::vector<distag::tensor> inputs;
    for (const json& each : line["inputs"]) inputs.push_back(tensor_of(each));
    const auto outputs = call_op(line["op"], inputs, attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      near(outputs[i], line["outputs"][i]["data"], given["absolute"], given["relative"]);
    }
    seen.insert(line["op"].get<std::string>());
  }
  for (const json& line : given["others"]) {
    std::vector<distag::tensor> inputs;
    for (const json& each : line["inputs"]) inputs.push_back(tensor_of(each));
    near(call_op(line["op"], inputs, line["attributes"])[0], line["outputs"][0]);
    seen.insert(line["op"].get<std::string>());
  }
  for (const std::string& name : op_names()) check(seen.count(name) == 1, "not tried: " + name);
}

void write_in_place(const json& given) {
  const distag::tensor x = tensor_of(given["before"]);
  const distag::tensor tail = x.slice(0, 1, 3, 1);
  x.write(given["written"].get<std::vector<float>>());
  near(tail, json(std::vector<double>{5, 6}));
  x.assign(distag::tensor::of(given["assigned"].get<double>()));
  near(x, given["expected_assigned"]);
  x.add_scaled(tensor_of(given["added"]), given["scale"]);
  near(x, given["expected_added"]);
}

void read_copies(const json& given) {
  const distag::tensor x = tensor_of(given["before"]), copy = x.clone(), snapshot = x.snapshot();
  const auto numbers_before = x.to_vector<float>();
  const auto view = x.view<float>();
  const float* memory = view.data();
  x.write(given["written"].get<std::vector<float>>());
  near(copy, given["before"]);
  near(snapshot, given["before"]);
  near(numbers_before.data(), numbers_before.size(), flat(given["before"]));
  near(view.data(), view.size(), flat(given["before"]));
  same(view.data(), memory, "the memory of a view moved");
  near(x, given["written"]);
}

void view_outlives(const json& given) {
  distag::tensor x = tensor_of(given["data"]);
  const void* memory = distag_tensor_get_data(x.get());
  auto view = x.view<float>();
  same(static_cast<const void*>(view.data()), memory, "a view copied");
  x.write({0.0f, 0.0f, 0.0f});
  x.close();
  const auto moved = std::move(view);
  near(moved.data(), moved.size(), flat(given["data"]));
}

void wrong_shape(const json& given) {
  fails<distag::usage_error>(given, [&] {
    distag::zeros(given["left"].get<std::vector<std::int64_t>>())
        .matmul(distag::zeros(given["right"].get<std::vector<std::int64_t>>()));
  });
}

void two_layers(const json& given) {
  const auto type = distag::dtype::float64;
  const distag::tensor x = tensor_of(given["x"], type);
  std::map<std::string, distag::tensor> parameters;
  for (const char* name : {"w1", "b1", "w2"}) parameters[name] = tensor_of(given[name], type).requires_grad(true);
  const distag::tensor hidden = distag::linear(x, parameters["w1"], parameters["b1"]).tanh();
  const distag::tensor targets = tensor_of(given["targets"], distag::dtype::int64);
  const distag::tensor loss = distag::cross_entropy(distag::linear(hidden, parameters["w2"]), targets);
  near(loss.item(), given["loss"], given["tolerance"]);
  const distag::context context = distag::context::local();
  context.backward(loss);
  for (const auto& [name, parameter] : parameters) {
    near(context.gradient(parameter), given["gradients"][name], given["tolerance"]);
  }
}

struct scale {
  double by;
  distag::tensor forward(const distag::tensor& x) { return x * by; }
  distag::tensor backward(const distag::tensor& gradient) { return gradient * by; }
};

void custom_op(const json& given) {
  const distag::tensor x = tensor_of(given["x"]).requires_grad(true);
  const distag::tensor y = distag::apply_custom("scale", scale{given["scale"].get<double>()}, x);
  near(y, given["y"]);
  const distag::context context = distag::context::local();
  context.backward(y.sum());
  near(context.gradient(x), given["gradient"]);
}

void hook(const json& given) {
  const distag::tensor x = tensor_of(given["x"]).requires_grad(true);
  std::vector<double> seen;
  const std::uint64_t id = x.add_hook([&](const distag::tensor& gradient) {
    seen = numbers(gradient);
    return gradient * given["given_scale"].get<double>();
  });
  const distag::tensor loss = (x * 2).sum();
  const distag::context context = distag::context::local();
  context.backward(loss);
  near(context.gradient(x), given["gradient"]);
  near(seen.data(), seen.size(), flat(given["seen"]));
  x.remove_hook(id);
}

// PyTorch's list of two betas is two settings here.
std::string name_of(const std::string& setting, std::size_t index) {
  if (setting == "betas") return index == 0 ? "beta1" : "beta2";
  return setting;
}

void optimizers(const json& given) {
  std::set<std::string> seen;
  for (const json& line : read_json(given["file"])) {
    const std::string kind = line["optimizer"];
    const distag::tensor parameter = tensor_of(line["initial"]).requires_grad(true);
    const distag::optimizer optimizer(kind, {parameter});
    for (const auto& [name, given_setting] : line["settings"].items()) {
      const auto settings = flat(given_setting);
      for (std::size_t i = 0; i < settings.size(); ++i) optimizer.set(name_of(name, i), settings[i]);
    }
    const distag::context context = distag::context::local();
    distag::backward_options options;
    options.seeds = {tensor_of(line["steps"][0]["gradient"])};
    context.backward(parameter.mul_scalar(1), options);
    optimizer.step(context);
    near(parameter, line["steps"][0]["parameter"]["data"], given["absolute"], given["relative"]);
    seen.insert(kind);
  }
  same(seen.size(), 8u, "kinds of optimizers");
}

}  // namespace

std::vector<test_case> local_cases() {
  return {{"tensor: every dtype, made and read", every_dtype},
          {"tensor: without elements, without dims, with strides", shapes},
          {"tensor: every op once with reference numbers", every_op},
          {"tensor: write and assign in place", write_in_place},
          {"tensor: a read copy or snapshot is not changed by a write", read_copies},
          {"tensor: a view of its memory outlives it", view_outlives},
          {"tensor: a wrong shape is an error that names it", wrong_shape},
          {"local: backward through two layers", two_layers},
          {"local: a custom op", custom_op},
          {"local: a hook sees the gradient and gives another", hook},
          {"local: an optimizer of each kind, one step", optimizers}};
}
