// Rows of sharded tensors over 2 members: training steps, the cost of an op over that of its shards, and the planning
// of a redistribution among 64.
#include <cmath>

#include "bench/step.h"
#include "layout/move.h"
#include "layout/spec_text.h"

namespace bench {

namespace {

// A 512-2048-512 MLP under the mean squared error, SGD; batch 256, cut over the members.
class Mlp {
 public:
  // `weights`, `biases`: the specs by which its parameters lie.
  Mlp(distag_worker* worker, distag_mesh* mesh, const char* weights, const char* biases) : mesh_(mesh) {
    x_ = sharded(uniform({256, 512}, false, 1), "('axis0', None)");
    y_ = sharded(uniform({256, 512}, false, 2), "('axis0', None)");
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2048, 512}, {2048}, {512, 2048}, {512}}) {
      const double scale = shape.size() == 1 ? 0 : 1 / std::sqrt(static_cast<double>(shape[1]));
      parameters_.push_back(sharded(parameter(shape, scale, parameters_.size()), shape.size() == 1 ? biases : weights));
    }
    std::vector<distag_value*> values;
    for (distag_tensor* parameter : parameters_) values.push_back(distag_tensor_as_value(parameter));
    distag_optimizer_create(worker, "sgd", values.data(), values.size(), &sgd_, &error_);
    distag_optimizer_set(sgd_, "lr", 0.05, &error_);
    check(error_, "a sharded model");
  }
  Mlp(const Mlp&) = delete;
  Mlp& operator=(const Mlp&) = delete;
  ~Mlp() {
    distag_optimizer_release(sgd_);
    for (distag_tensor* parameter : parameters_) distag_tensor_release(parameter);
    distag_tensor_release(y_);
    distag_tensor_release(x_);
  }

  void train() {
    Step step;
    distag_context* context = nullptr;
    distag_context_create_joint(mesh_, &context, step.error());
    distag_tensor* hidden = step.apply(distag_relu, step.apply(distag_linear, x_, parameters_[0], parameters_[1]));
    distag_tensor* out = step.apply(distag_linear, hidden, parameters_[2], parameters_[3]);
    distag_tensor* loss = step.apply(distag_mse_loss, out, y_);
    distag_backward(context, &loss, 1, nullptr, step.error());
    distag_optimizer_step(sgd_, context, nullptr, step.error());
    step.done();
    distag_context_release(context);
  }

 private:
  distag_tensor* sharded(distag_tensor* tensor, const char* spec) {
    distag_tensor_mark_sharding(tensor, mesh_, spec, -1, &error_);
    return tensor;
  }

  distag_mesh* const mesh_;
  distag_error error_ = DISTAG_ERROR_INIT;
  distag_tensor* x_ = nullptr;
  distag_tensor* y_ = nullptr;
  std::vector<distag_tensor*> parameters_;
  distag_optimizer* sgd_ = nullptr;
};

void data_parallel(const Member& member) {
  Mlp model(member.worker, member.mesh, "(None, None)", "(None,)");
  const std::vector<double> samples = timed([&] { model.train(); }, 40, 5);
  if (member.reports) report("data_parallel_step", samples, "ms");
}

void fully_sharded(const Member& member) {
  Mlp model(member.worker, member.mesh, "('axis0', None)", "('axis0',)");
  const std::vector<double> samples = timed([&] { model.train(); }, 40, 5);
  if (member.reports) report("fsdp_like_step", samples, "ms");
}

double seconds_of_linear(distag_tensor* x, distag_tensor* weight) {
  Step step;
  return timed([&] { step.apply(distag_linear, x, weight, nullptr); }, 1, 0)[0];
}

distag_tensor* laid(distag_mesh* mesh, std::vector<int64_t> shape, const char* spec) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_tensor* x = uniform(std::move(shape), false, 1);
  distag_tensor_mark_sharding(x, mesh, spec, -1, &error);
  check(error, "a sharded tensor");
  return x;
}

// The time of linear on 8 rows for each of 2 members, over that on 8 plain rows. With other columns each time no
// placement is known.
void op_over_local(distag_mesh* mesh, bool reports, const char* name, bool is_known) {
  std::vector<double> samples;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t columns = is_known ? 8 : 8 + i;
    distag_tensor* tensors[] = {uniform({8, columns}, false, 1), uniform({8, columns}, false, 1),
                                laid(mesh, {16, columns}, "('axis0', None)"), laid(mesh, {8, columns}, "(None, None)")};
    const double local = seconds_of_linear(tensors[0], tensors[1]);
    samples.push_back(seconds_of_linear(tensors[2], tensors[3]) - local);
    for (distag_tensor* tensor : tensors) distag_tensor_release(tensor);
  }
  if (reports) report(name, samples, "us");
}

// The boxes of one of 64 members in a move that no single collective makes.
void plan_for_64() {
  using namespace distag::layout;
  MeshRequest request;
  request.shape = {8, 8};
  request.axis_names = {"x", "y"};
  for (int32_t rank = 0; rank < 64; ++rank) request.ranks.push_back(rank);
  const MeshShape mesh = MeshShape::make(request);
  const distag::Dims shape = {1000, 1000};
  const Spec from = parse_spec(mesh, "(('x', 'y'), None)", 2);
  const Spec to = parse_spec(mesh, "('y', 'x')", 2);
  size_t boxes = 0;
  const auto plan = [&] {
    const Move move(mesh, shape, from, to);
    boxes += move.taken_by(37).size() + move.given_by(37).size();
  };
  report("redistribute_plan_64", timed(plan, 500, 5), "us");
  if (boxes == 0) std::exit(1);
}

}  // namespace

std::vector<MeshRow> sharded_rows() {
  return {{"data_parallel_step", 2, data_parallel},
          {"fsdp_like_step", 2, fully_sharded},
          {"sharded_op_placed", 2,
           [](const Member& member) { op_over_local(member.mesh, member.reports, "sharded_op_placed", true); }},
          {"sharded_op_new", 2,
           [](const Member& member) { op_over_local(member.mesh, member.reports, "sharded_op_new", false); }}};
}

std::vector<Row> planning_rows() { return {{"redistribute_plan_64", plan_for_64}}; }

}  // namespace bench
