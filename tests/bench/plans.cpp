// Rows of plans: the search alone, steps of three models under the specs that it finds beside specs written by hand,
// and what a plan costs an op once it is applied.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "bench/step.h"

namespace bench {

namespace {

using Tensors = std::vector<distag_tensor*>;

// ---- ops by name ----

distag_value* make_dims(const char* name, const std::vector<int64_t>& dims) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_value* list = nullptr;
  distag_value* map = nullptr;
  distag_value_create_int64_list(dims.data(), dims.size(), &list, &error);
  distag_value_create_map(&name, &list, 1, &map, &error);
  check(error, "attributes");
  distag_value_release(list);
  return map;
}

distag_tensor* apply_named(Step& step, const char* name, const Tensors& inputs, distag_value* attributes = nullptr) {
  return step.apply([&](distag_tensor** result, distag_error* error) {
    return distag_apply(name, inputs.data(), inputs.size(), attributes, 0, result, 1, error);
  });
}

distag_tensor* permuted(Step& step, distag_tensor* x, const std::vector<int64_t>& dims) {
  distag_value* attributes = make_dims("dims", dims);
  distag_tensor* y = apply_named(step, "permute", {x}, attributes);
  distag_value_release(attributes);
  return y;
}

distag_tensor* reshaped(Step& step, distag_tensor* x, const std::vector<int64_t>& shape) {
  return step.apply(distag_reshape, x, shape.data(), shape.size());
}

// ---- models ----

enum class Kind { kData, kIndex, kParameter };

struct Leaf {
  std::string name;
  std::vector<int64_t> shape;
  Kind kind = Kind::kParameter;
  int64_t below = 0;  // of indices
};

// The specs of all leaves, as somebody would write them.
struct Form {
  const char* name;
  std::vector<const char*> specs;
};

struct Model {
  std::vector<Leaf> leaves;
  std::function<distag_tensor*(Step& step, const Tensors& leaves)> loss;
  std::vector<Form> forms;
};

// 512-2048-512 under the mean squared error, batch 256.
Model mlp_model() {
  Model model;
  model.leaves = {{"x", {256, 512}, Kind::kData}, {"y", {256, 512}, Kind::kData},
                  {"up.weight", {2048, 512}},     {"up.bias", {2048}},
                  {"down.weight", {512, 2048}},   {"down.bias", {512}}};
  model.loss = [](Step& step, const Tensors& leaf) {
    distag_tensor* hidden = step.apply(distag_relu, step.apply(distag_linear, leaf[0], leaf[2], leaf[3]));
    return step.apply(distag_mse_loss, step.apply(distag_linear, hidden, leaf[4], leaf[5]), leaf[1]);
  };
  const char *const rows = "('x', None)", *const columns = "(None, 'x')", *const whole = "(None, None)";
  model.forms = {{"data parallel", {rows, rows, whole, "(None,)", whole, "(None,)"}},
                 {"tensor parallel", {whole, whole, rows, "('x',)", columns, "(None,)"}},
                 {"fully sharded", {rows, rows, rows, "('x',)", rows, "('x',)"}}};
  return model;
}

struct Sizes {
  int64_t batch;
  int64_t length;
  int64_t width;
  int64_t heads;
};

// [batch, length, width] to [batch, heads, length, width / heads].
distag_tensor* split_heads(Step& step, distag_tensor* x, const Sizes& sizes) {
  return permuted(step, reshaped(step, x, {sizes.batch, sizes.length, sizes.heads, sizes.width / sizes.heads}),
                  {0, 2, 1, 3});
}

// `leaf`: those that add_block adds, from its first one on.
distag_tensor* block(Step& step, distag_tensor* x, distag_tensor* const* leaf, const Sizes& sizes) {
  distag_tensor* normal = apply_named(step, "layer_norm", {x, leaf[0], leaf[1]});
  distag_tensor* q = split_heads(step, step.apply(distag_linear, normal, leaf[2], nullptr), sizes);
  distag_tensor* k = split_heads(step, step.apply(distag_linear, normal, leaf[3], nullptr), sizes);
  distag_tensor* v = split_heads(step, step.apply(distag_linear, normal, leaf[4], nullptr), sizes);
  distag_tensor* scores = step.apply(distag_matmul, q, step.apply(distag_transpose, k, int64_t{2}, int64_t{3}));
  const double scale = 1 / std::sqrt(static_cast<double>(sizes.width / sizes.heads));
  distag_tensor* shares = step.apply(distag_softmax, step.apply(distag_mul_scalar, scores, scale), int64_t{-1});
  distag_tensor* mixed = permuted(step, step.apply(distag_matmul, shares, v), {0, 2, 1, 3});
  distag_tensor* together = reshaped(step, mixed, {sizes.batch, sizes.length, sizes.width});
  x = step.apply(distag_add, x, step.apply(distag_linear, together, leaf[5], nullptr));
  normal = apply_named(step, "layer_norm", {x, leaf[6], leaf[7]});
  distag_tensor* hidden = apply_named(step, "gelu", {step.apply(distag_linear, normal, leaf[8], nullptr)});
  return step.apply(distag_add, x, step.apply(distag_linear, hidden, leaf[9], nullptr));
}

constexpr size_t kLeavesOfBlock = 10;

void add_block(std::vector<Leaf>& leaves, const std::string& name, int64_t width) {
  for (const char* norm : {"norm1.weight", "norm1.bias"}) leaves.push_back({name + norm, {width}});
  for (const char* product : {"query", "key", "value", "merge"}) leaves.push_back({name + product, {width, width}});
  for (const char* norm : {"norm2.weight", "norm2.bias"}) leaves.push_back({name + norm, {width}});
  leaves.push_back({name + "up", {4 * width, width}});
  leaves.push_back({name + "down", {width, 4 * width}});
}

// A block of width 256 with 4 heads, on 8 sequences of 128.
Model transformer_model() {
  const Sizes sizes{8, 128, 256, 4};
  const std::vector<int64_t> shape = {sizes.batch, sizes.length, sizes.width};
  Model model;
  model.leaves = {{"x", shape, Kind::kData}, {"y", shape, Kind::kData}};
  add_block(model.leaves, "", sizes.width);
  model.loss = [sizes](Step& step, const Tensors& leaf) {
    return step.apply(distag_mse_loss, block(step, leaf[0], leaf.data() + 2, sizes), leaf[1]);
  };
  const char *const rows = "('x', None)", *const columns = "(None, 'x')", *const whole = "(None, None)";
  const char *const batch = "('x', None, None)", *const same = "(None, None, None)";
  const char *const one = "(None,)", *const part = "('x',)";
  model.forms = {{"data parallel", {batch, batch, one, one, whole, whole, whole, whole, one, one, whole, whole}},
                 {"tensor parallel", {same, same, one, one, rows, rows, rows, columns, one, one, rows, columns}},
                 {"fully sharded", {batch, batch, part, part, rows, rows, rows, rows, part, part, rows, rows}}};
  return model;
}

// 1,024 rows of a table of 20,000 x 64, a linear layer of them, and the cross entropy of 1,000 classes.
Model embedding_model() {
  Model model;
  model.leaves = {{"index", {1024}, Kind::kIndex, 20000},
                  {"targets", {1024}, Kind::kIndex, 1000},
                  {"table", {20000, 64}},
                  {"head", {1000, 64}}};
  model.loss = [](Step& step, const Tensors& leaf) {
    distag_tensor* found = apply_named(step, "embedding", {leaf[0], leaf[2]});
    return step.apply(distag_cross_entropy, step.apply(distag_linear, found, leaf[3], nullptr), leaf[1]);
  };
  model.forms = {{"data parallel", {"('x',)", "('x',)", "(None, None)", "(None, None)"}},
                 {"fully sharded", {"('x',)", "('x',)", "('x', None)", "('x', None)"}},
                 {"vocabulary parallel", {"(None,)", "(None,)", "('x', None)", "('x', None)"}},
                 {"rows of the table", {"(None,)", "(None,)", "('x', None)", "(None, None)"}},
                 {"columns of the table", {"(None,)", "(None,)", "(None, 'x')", "(None, 'x')"}}};
  return model;
}

// ---- their tensors ----

distag_tensor* make_deferred(const Leaf& leaf, uint32_t init, uint64_t seed) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  options.init = init;
  if (init == DISTAG_INIT_RANDN) {
    options.seed = seed;
    options.scale = leaf.shape.size() < 2 ? 1 : 1 / std::sqrt(static_cast<double>(leaf.shape.back()));
  }
  const distag_dtype dtype = leaf.kind == Kind::kIndex ? DISTAG_INT64 : DISTAG_FLOAT32;
  distag_tensor* made = nullptr;
  distag_tensor_create_deferred(dtype, leaf.shape.data(), leaf.shape.size(), &options, &made, &error);
  if (leaf.kind == Kind::kParameter) distag_tensor_set_requires_grad(made, 1, &error);
  check(error, leaf.name.c_str());
  return made;
}

distag_tensor* make_index(const Leaf& leaf) {
  std::vector<int64_t> values(static_cast<size_t>(leaf.shape[0]));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i) * 7919 % leaf.below;
  distag_error error = DISTAG_ERROR_INIT;
  distag_tensor* made = nullptr;
  distag_tensor_create(values.data(), values.size() * sizeof values[0], DISTAG_INT64, leaf.shape.data(), 1, &made,
                       &error);
  check(error, leaf.name.c_str());
  return made;
}

// A model on shapes: what a search is about.
class Traced {
 public:
  explicit Traced(const Model& model) {
    for (const Leaf& leaf : model.leaves) {
      names_.push_back(leaf.name.c_str());
      leaves_.push_back(make_deferred(leaf, DISTAG_INIT_SHAPE, 0));
    }
    root_ = model.loss(step_, leaves_);
    step_.done();
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;
  ~Traced() {
    for (distag_tensor* leaf : leaves_) distag_tensor_release(leaf);
  }

  distag_plan* plan(distag_mesh* mesh) {
    distag_error error = DISTAG_ERROR_INIT;
    distag_plan_options options = DISTAG_PLAN_OPTIONS_INIT;
    options.mode = DISTAG_PLAN_AUTO;
    options.names = names_.data();
    options.leaves = leaves_.data();
    options.leaf_count = leaves_.size();
    distag_plan* made = nullptr;
    distag_plan_create(mesh, &root_, 1, &options, &made, &error);
    check(error, "a plan");
    return made;
  }

 private:
  Step step_;
  std::vector<const char*> names_;
  Tensors leaves_;
  distag_tensor* root_ = nullptr;
};

// A model that is trained by SGD, with its leaves as the specs say.
class Trained {
 public:
  Trained(const Model& model, const Member& member, distag_mesh* mesh, const std::vector<const char*>& specs)
      : model_(model), mesh_(mesh) {
    std::vector<distag_value*> values;
    for (size_t i = 0; i < model.leaves.size(); ++i) {
      const Leaf& leaf = model.leaves[i];
      leaves_.push_back(leaf.kind == Kind::kIndex ? make_index(leaf) : make_deferred(leaf, DISTAG_INIT_RANDN, i));
      distag_tensor_mark_sharding(leaves_.back(), mesh, specs[i], -1, &error_);
      if (leaf.kind == Kind::kParameter) values.push_back(distag_tensor_as_value(leaves_.back()));
    }
    distag_optimizer_create(member.worker, "sgd", values.data(), values.size(), &sgd_, &error_);
    distag_optimizer_set(sgd_, "lr", 0.01, &error_);
    check(error_, "a model under a plan");
  }
  Trained(const Trained&) = delete;
  Trained& operator=(const Trained&) = delete;
  ~Trained() {
    distag_optimizer_release(sgd_);
    for (distag_tensor* leaf : leaves_) distag_tensor_release(leaf);
  }

  void train() {
    Step step;
    distag_context* context = nullptr;
    distag_context_create_joint(mesh_, &context, step.error());
    distag_tensor* loss = model_.loss(step, leaves_);
    distag_backward(context, &loss, 1, nullptr, step.error());
    distag_optimizer_step(sgd_, context, nullptr, step.error());
    step.done();
    distag_context_release(context);
  }

 private:
  const Model& model_;
  distag_mesh* const mesh_;
  distag_error error_ = DISTAG_ERROR_INIT;
  Tensors leaves_;
  distag_optimizer* sgd_ = nullptr;
};

// ---- the rows ----

distag_mesh* make_line(const Member& member) {
  distag_error error = DISTAG_ERROR_INIT;
  const char* const axis = "x";
  const int64_t size = 2;
  distag_mesh* made = nullptr;
  distag_mesh_create(member.worker, nullptr, 0, &size, &axis, 1, nullptr, &made, &error);
  check(error, "a mesh of one axis");
  return made;
}

// A step under the specs that the search finds, by its default costs, over one under the fastest of the forms. All are
// trained in turn.
void auto_step(const Member& member, const char* name, const Model& model) {
  distag_mesh* mesh = make_line(member);
  distag_plan* plan = Traced(model).plan(mesh);
  std::vector<const char*> found;
  for (const Leaf& leaf : model.leaves) found.push_back(distag_plan_get_spec(plan, leaf.name.c_str()));
  std::vector<std::unique_ptr<Trained>> sides;
  sides.push_back(std::make_unique<Trained>(model, member, mesh, found));
  for (const Form& form : model.forms) sides.push_back(std::make_unique<Trained>(model, member, mesh, form.specs));
  std::vector<std::vector<double>> seconds(sides.size());
  for (int round = -3; round < 30; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      const double taken = timed([&] { sides[i]->train(); }, 1, 0)[0];
      if (round >= 0) seconds[i].push_back(taken);
    }
  }
  size_t best = 1;
  for (size_t i = 2; i < sides.size(); ++i) {
    if (median(seconds[i]) < median(seconds[best])) best = i;
  }
  if (member.reports) report_ratio(name, seconds[0], seconds[best], "ms");
  sides.clear();
  distag_plan_release(plan);
  distag_mesh_release(mesh);
}

// Small ops, so that what comes on top of their arithmetic shows.
double seconds_of_ops(distag_tensor* x, distag_tensor* weight) {
  const auto ops = [&] {
    for (int i = 0; i < 100; ++i) {
      Step step;
      step.apply(distag_linear, x, weight, nullptr);
      step.done();
    }
  };
  return timed(ops, 1, 0)[0] / 100;
}

// linear on tensors that an applied plan has marked, as they are to lie, over the same on tensors that were marked by
// hand, on a mesh of their own. Nothing moves.
void planned_op(const Member& member) {
  const Leaf shapes[] = {{"x", {16, 8}, Kind::kData}, {"weight", {8, 8}, Kind::kData}};
  const char* const names[] = {"x", "weight"};
  const char* const specs[] = {"('x', None)", "(None, None)"};
  distag_error error = DISTAG_ERROR_INIT;
  distag_mesh* meshes[] = {make_line(member), make_line(member)};
  Tensors planned, marked;
  for (const Leaf& leaf : shapes) {
    planned.push_back(make_deferred(leaf, DISTAG_INIT_RANDN, 1));
    marked.push_back(make_deferred(leaf, DISTAG_INIT_RANDN, 1));
  }
  distag_plan_options options = DISTAG_PLAN_OPTIONS_INIT;
  options.names = options.patterns = names;
  options.leaves = planned.data();
  options.leaf_count = options.rule_count = 2;
  options.specs = specs;
  distag_plan* plan = nullptr;
  distag_plan_create(meshes[0], nullptr, 0, &options, &plan, &error);
  distag_plan_apply(plan, meshes[0], &error);
  for (size_t i = 0; i < 2; ++i) distag_tensor_mark_sharding(marked[i], meshes[1], specs[i], -1, &error);
  check(error, "planned_op");
  std::vector<double> ours, theirs;
  for (int i = 0; i < 400; ++i) {
    ours.push_back(seconds_of_ops(planned[0], planned[1]));
    theirs.push_back(seconds_of_ops(marked[0], marked[1]));
  }
  if (member.reports) report_ratio("planned_op", ours, theirs, "us");
  distag_plan_release(plan);
  for (const Tensors* tensors : {&planned, &marked}) {
    for (distag_tensor* tensor : *tensors) distag_tensor_release(tensor);
  }
  for (distag_mesh* mesh : meshes) distag_mesh_release(mesh);
}

distag_mesh* make_grid(const std::vector<int64_t>& shape) {
  distag_error error = DISTAG_ERROR_INIT;
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  distag_mesh* made = nullptr;
  distag_mesh_create(nullptr, nullptr, count, shape.data(), nullptr, shape.size(), nullptr, &made, &error);
  check(error, "a mesh without a worker");
  return made;
}

// The search of one program that was traced before.
void search(const char* name, const std::vector<int64_t>& shape, const Model& model, int count) {
  distag_mesh* mesh = make_grid(shape);
  Traced traced(model);
  report(name, timed([&] { distag_plan_release(traced.plan(mesh)); }, count, 0), "ms");
  distag_mesh_release(mesh);
}

// Residual blocks of five ops each, and five ops behind them.
Model residual_model(size_t ops) {
  Model model;
  const size_t blocks = (ops - 5) / 5;
  model.leaves.push_back({"x", {1024, 512}, Kind::kData});
  for (size_t i = 0; i <= blocks; ++i) {
    const std::string name = std::to_string(i) + ".";
    if (i < blocks) {
      model.leaves.push_back({name + "norm.weight", {512}});
      model.leaves.push_back({name + "norm.bias", {512}});
    }
    model.leaves.push_back({name + "up", {2048, 512}});
    model.leaves.push_back({name + "down", {512, 2048}});
  }
  model.loss = [blocks](Step& step, const Tensors& leaf) {
    distag_tensor* x = leaf[0];
    const auto two_layers = [&step](distag_tensor* from, distag_tensor* up, distag_tensor* down) {
      return step.apply(distag_linear, step.apply(distag_relu, step.apply(distag_linear, from, up, nullptr)), down,
                        nullptr);
    };
    for (size_t i = 0; i < blocks; ++i) {
      distag_tensor* const* own = leaf.data() + 1 + 4 * i;
      x = step.apply(distag_add, x, two_layers(apply_named(step, "layer_norm", {x, own[0], own[1]}), own[2], own[3]));
    }
    x = two_layers(x, leaf[leaf.size() - 2], leaf.back());
    return step.mean(step.apply(distag_mul, x, x));
  };
  return model;
}

// 24 blocks of width 1,024 with 16 heads between a table of 50,257 words and the products with a head, on 8 sequences
// of 512.
Model language_model() {
  const Sizes sizes{8, 512, 1024, 16};
  constexpr int64_t kWords = 50257;
  Model model;
  model.leaves = {{"index", {sizes.batch, sizes.length}, Kind::kIndex, kWords},
                  {"targets", {sizes.batch * sizes.length}, Kind::kIndex, kWords},
                  {"table", {kWords, sizes.width}},
                  {"norm.weight", {sizes.width}},
                  {"norm.bias", {sizes.width}},
                  {"head", {kWords, sizes.width}}};
  for (int i = 0; i < 24; ++i) add_block(model.leaves, "layers." + std::to_string(i) + ".", sizes.width);
  model.loss = [sizes](Step& step, const Tensors& leaf) {
    distag_tensor* x = apply_named(step, "embedding", {leaf[0], leaf[2]});
    for (size_t i = 6; i < leaf.size(); i += kLeavesOfBlock) x = block(step, x, leaf.data() + i, sizes);
    x = reshaped(step, apply_named(step, "layer_norm", {x, leaf[3], leaf[4]}),
                 {sizes.batch * sizes.length, sizes.width});
    return step.apply(distag_cross_entropy, step.apply(distag_linear, x, leaf[5], nullptr), leaf[1]);
  };
  return model;
}

}  // namespace

std::vector<Row> search_rows() {
  return {{"plan_100_ops",
           [] {
             search("plan_100_ops", {2, 2}, residual_model(100), 5);
           }},
          {"plan_400_ops",
           [] {
             search("plan_400_ops", {2, 2}, residual_model(400), 5);
           }},
          {"plan_24_layers", [] {
             search("plan_24_layers", {2, 2, 2}, language_model(), 1);
           }}};
}

std::vector<MeshRow> planned_rows() {
  return {{"auto_mlp_step", 2, [](const Member& member) { auto_step(member, "auto_mlp_step", mlp_model()); }},
          {"auto_transformer_step", 2,
           [](const Member& member) { auto_step(member, "auto_transformer_step", transformer_model()); }},
          {"auto_embedding_step", 2,
           [](const Member& member) { auto_step(member, "auto_embedding_step", embedding_model()); }},
          {"planned_op", 2, planned_op}};
}

}  // namespace bench
