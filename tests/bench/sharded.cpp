// Rows of sharded tensors over 2 members: training steps, the cost of an op over that of its shards, and the planning
// of a redistribution among 64.
#include "bench/mlp.h"
#include "layout/move.h"
#include "layout/spec_text.h"

namespace bench {

namespace {

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
