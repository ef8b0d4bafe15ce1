// Meshes and sharded tensors through the binding: four members in one process, a thread each.
#include <gtest/gtest.h>

#include <cstdlib>
#include <distag.hpp>
#include <thread>

namespace {

using namespace distag;
using namespace std::chrono_literals;

constexpr int kMembers = 4;

// Runs a program of (worker, mesh) on each member of a mesh of 2 x 2.
template <class Program>
void on_members(const char* job, Program program) {
  std::vector<worker> workers;
  std::vector<future<void>> starts;
  for (int rank = 0; rank < kMembers; ++rank) {
    worker_options options;
    options.rank = rank;
    options.world_size = kMembers;
    options.rendezvous = std::string("inproc://") + job;
    workers.emplace_back(options);
    starts.push_back(workers.back().start_async(120s));
  }
  wait_all(starts);
  std::vector<std::thread> threads;
  for (const worker& each : workers) {
    threads.emplace_back([&each, &program] {
      mesh_options options;
      options.timeout = 120s;
      program(each, mesh(each, {2, -1}, {"data", "model"}, options));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

tensor numbers(std::int64_t rows, std::int64_t columns) {
  std::vector<double> made(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<double>(i);
  return tensor::of(made, {rows, columns});
}

TEST(Meshes, WithoutAWorkerServeForSpecsBoxesAndPictures) {
  const mesh alone = mesh::alone({2, 3}, {"x", "y"});
  EXPECT_EQ(alone.ranks(), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(alone.position(), -1);
  EXPECT_EQ(alone.axis_names(), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(alone.spec("(Shard(dim=0), Replicate())", 2), "('x', None)");
  EXPECT_EQ(alone.spec("('x', None)", 2, spec_form::placements), "S(0), R");
  const box found = alone.box("(x, y)", {5, 7}, 4);
  EXPECT_EQ(found.offset, (std::vector<std::int64_t>{3, 3}));
  EXPECT_EQ(found.extent, (std::vector<std::int64_t>{2, 3}));
  EXPECT_NE(visualize_sharding("{devices=[2,2]0,1,2,3}").find("2"), std::string::npos);
  EXPECT_NE(visualize_sharding(alone, "(x, None)", {4, 6}).find("2:4, 0:6"), std::string::npos);
  status err;
  mesh::alone({2, 3}, {"x"}, {}, err);
  EXPECT_EQ(err.code(), errc::invalid_argument);
}

TEST(Meshes, MayBeHybrid) {
  const std::vector<std::int64_t> outer{2, 1};
  mesh_options options;
  options.ranks = {0, 1, 2, 3};
  options.granules = {1, 0, 1, 0};
  options.outer_shape = outer;
  const mesh hybrid = mesh::alone({1, 2}, {"data", "model"}, options);
  EXPECT_EQ(hybrid.ranks(), (std::vector<std::int32_t>{1, 3, 0, 2}));
  EXPECT_EQ(hybrid.shape().to_vector(), (std::vector<std::int64_t>{2, 2}));
}

// The library reads a granule for each member.
TEST(Meshes, TakeAGranuleForEachMember) {
  on_members("granules", [](const worker& own, const mesh&) {
    mesh_options options;
    options.outer_shape = {2, 1};
    for (const std::vector<std::int64_t>& granules : {std::vector<std::int64_t>{0}, {0, 0, 1}, {0, 0, 1, 1, 1}}) {
      options.granules = granules;
      status err;
      const mesh wrong(own, {1, 2}, {"data", "model"}, options, err);
      EXPECT_EQ(err.code(), errc::invalid_argument) << granules.size();
    }
    options.granules = {1, 0, 1, 0};
    const mesh hybrid(own, {1, 2}, {"data", "model"}, options);
    EXPECT_EQ(hybrid.ranks(), (std::vector<std::int32_t>{1, 3, 0, 2}));
  });
}

TEST(Meshes, HaveCollectives) {
  on_members("collectives", [](const worker& own, const mesh& grid) {
    const double rank = own.rank();
    const tensor x = tensor::of({rank, 10 + rank});
    EXPECT_EQ(grid.all_reduce(x).to_vector<double>(), (std::vector<double>{6, 46}));
    EXPECT_EQ(grid.all_gather(x, "data").count(), 4U);
    EXPECT_EQ(grid.reduce_scatter(x, "data").count(), 1U);
    EXPECT_EQ(grid.all_to_all(x, "model").count(), 2U);
    collective_options from_two;
    from_two.root = 2;
    EXPECT_EQ(grid.broadcast(x, nullptr, from_two).to_vector<double>(), (std::vector<double>{2, 12}));
    EXPECT_EQ(static_cast<bool>(grid.reduce(x, nullptr, from_two)), own.rank() == 2);
    EXPECT_EQ(grid.permute(x).to_vector<double>()[0], (own.rank() + 3) % 4);
    const future<value> later = grid.collective_async(DISTAG_ALL_REDUCE, x, "model");
    EXPECT_EQ(later.get().as<tensor>().to_vector<double>()[0], own.rank() < 2 ? 1 : 5);
    const mesh line = grid.line("side");
    EXPECT_EQ(line.all_reduce(x).to_vector<double>(), (std::vector<double>{6, 46}));
    EXPECT_GE(grid.stats().all_reduces, 3U);
    EXPECT_NE(grid.report().find("\"side\""), std::string::npos);
  });
}

TEST(ShardedTensors, AreCutTrainedAndGathered) {
  on_members("training", [](const worker& own, const mesh& grid) {
    const tensor x = grid.shard(numbers(4, 4), "('data', None)");
    EXPECT_STREQ(x.spec(), "('data', None)");
    EXPECT_EQ(x.mesh().ranks(), grid.ranks());
    EXPECT_EQ(x.local().shape().to_vector(), (std::vector<std::int64_t>{2, 4}));
    EXPECT_EQ(x.gather().to_vector<double>(), numbers(4, 4).to_vector<double>());
    EXPECT_EQ(static_cast<bool>(x.gather(1)), own.rank() == 1);
    EXPECT_EQ(x.redistribute("(None, None)").to_vector<double>(), numbers(4, 4).to_vector<double>());
    const tensor weight = grid.shard(full(0.5, {4, 2}, dtype::float64), "(None, 'model')").requires_grad(true);
    const optimizer sgd(own, "sgd", {weight}, {{"lr", 0.25}});
    const context joint = grid.context();
    joint.backward(x.matmul(weight).sum());
    sgd.step(joint);
    std::vector<double> expected;
    for (double sum : {24.0, 28.0, 32.0, 36.0}) expected.insert(expected.end(), 2, 0.5 - 0.25 * sum);
    EXPECT_EQ(weight.gather().to_vector<double>(), expected);
    const tensor part = full(own.rank(), {1}, dtype::float64);
    const tensor parts = grid.from_local(part, "(('data', 'model'),)");
    EXPECT_EQ(parts.gather().to_vector<double>(), (std::vector<double>{0, 1, 2, 3}));
  });
}

// A loss that is refused ends its mesh.
TEST(ShardedTensors, CountEachRowOfALossUnlessTheIgnoredTargetIsGiven) {
  const std::vector<std::int64_t> chosen{-100, 1, -100, 3};
  const auto check = [&](const char* name, auto loss) {
    on_members(name, [&](const worker& own, const mesh& grid) {
      const tensor whole = numbers(4, 4).log_softmax(), logs = grid.shard(whole.clone(), "('data', None)");
      const tensor targets = grid.shard(tensor::of(chosen), "('data',)");
      EXPECT_DOUBLE_EQ(loss(logs, targets, -100).gather().item(), loss(whole, tensor::of(chosen), {}).item());
      own.all_gather(nullptr);  // then all members have what they gathered
      try {
        loss(logs, targets, {});
        ADD_FAILURE() << name << ": an ignored row was counted";
      } catch (const usage_error& refused) {
        EXPECT_NE(std::string(refused.what()).find(std::string(name) + ": target -100"), std::string::npos);
      }
    });
  };
  using index = std::optional<std::int64_t>;
  check("cross_entropy", [](const tensor& logs, const tensor& targets, index ignored) {
    return ignored ? logs.cross_entropy(targets, {}, "mean", ignored) : logs.cross_entropy(targets);
  });
  check("nll_loss", [](const tensor& logs, const tensor& targets, index ignored) {
    return ignored ? logs.nll_loss(targets, {}, "mean", ignored) : logs.nll_loss(targets);
  });
}

TEST(ShardedTensors, AreNoViewsOfMemory) {
  on_members("views", [](const worker&, const mesh& grid) {
    status err;
    EXPECT_TRUE(grid.shard(numbers(4, 6), "('data', 'model')").view<double>(err).empty());
    EXPECT_EQ(err.code(), errc::invalid_state);
    EXPECT_STREQ(err.message(), "the elements are not here: use local() or gather()");
    err.clear();
    EXPECT_TRUE(grid.shard(numbers(4, 6), "('data', 'model')").transpose(0, 1).view<double>(err).empty());
    EXPECT_EQ(err.code(), errc::invalid_state);
    EXPECT_EQ(grid.shard(numbers(0, 6), "('data', 'model')").view<double>().size(), 0u);
  });
}

TEST(ShardedTensors, MayBeDeferred) {
  on_members("deferred", [](const worker& own, const mesh& grid) {
    deferred_options how;
    how.init = init::randn;
    how.seed = 5;
    const tensor random = deferred({4, 4}, dtype::float64, how);
    EXPECT_TRUE(random.is_deferred());
    EXPECT_EQ(grid.shard(random, "('data', 'model')").gather().to_vector<double>(),
              randn(5, {4, 4}, dtype::float64).to_vector<double>());
    const std::int64_t row = own.rank() / 2;
    const tensor rows = deferred_from<double>({2, 3}, [row](ints offset, ints extent, double* elements) {
      EXPECT_EQ(offset.to_vector(), (std::vector<std::int64_t>{row, 0}));
      for (std::int64_t i = 0; i < extent[0] * extent[1]; ++i) elements[i] = static_cast<double>(10 * row + i);
    });
    EXPECT_EQ(grid.shard(rows, "('data', None)").gather().to_vector<double>(),
              (std::vector<double>{0, 1, 2, 10, 11, 12}));
    const tensor refused =
        deferred_from<double>({2}, [](ints, ints, double*, status& err) { err.set(errc::user, "no such file"); });
    status err;
    EXPECT_TRUE(refused.to_vector<double>(err).empty() || err.code() == errc::user);
    EXPECT_STREQ(err.message(), "no such file");
  });
}

TEST(Loaders, GiveTheSameRowsOnAnyMeshAndAfterAResume) {
  on_members("loaders", [](const worker& own, const mesh& grid) {
    loader_options options;
    options.mode = batch_mode::rows;
    options.row_count = 10;
    options.batch_rows = 4;
    options.shuffle = true;
    options.seed = 1;
    options.specs = {{"x", "('data', 'model')"}};
    const auto source = [](std::uint64_t, ints rows) -> value {
      std::vector<double> made;
      for (std::int64_t row : rows) made.insert(made.end(), {static_cast<double>(row), -static_cast<double>(row)});
      return std::map<std::string, value>{{"x", tensor::of(made, {static_cast<std::int64_t>(rows.size()), 2})}};
    };
    std::vector<double> found;
    const loader first(grid, source, options);
    const value batch = first.next();
    for (double number : batch["x"].as<tensor>().gather().to_vector<double>()) found.push_back(number);
    options.state = first.state();
    for (const value& each : loader(grid, source, options)) {
      for (double number : each["x"].as<tensor>().gather().to_vector<double>()) found.push_back(number);
    }
    std::vector<double> expected;
    for (double row : {6, 9, 2, 0, 5, 1, 3, 4, 7, 8}) expected.insert(expected.end(), {row, -row});
    EXPECT_EQ(found, expected);
    EXPECT_EQ(first.info().count, 3);
    const int rank = own.rank();
    const loader failing(grid, [rank](std::uint64_t, ints) -> value {
      if (rank == 2) throw std::out_of_range("no such file");
      return tensor::of(std::vector<double>{1, 2});
    });
    status err;
    EXPECT_FALSE(failing.next(err));
    EXPECT_EQ(err.origin_rank(), 2);
    EXPECT_NE(std::string(err.message()).find("no such file"), std::string::npos);
    EXPECT_EQ(failing.next_async().get().kind(), value_kind::null_);
  });
}

TEST(Plans, MarkNamedTensors) {
  on_members("plans", [](const worker& own, const mesh& grid) {
    plan_options options;
    options.leaves = {{"0.weight", numbers(4, 4)}, {"0.bias", full(own.rank(), {4}, dtype::float64)}};
    options.rules = {{"*.weight", "('data', 'model')"}};
    options.source = 3;
    const plan made(grid, options);
    made.apply(grid);
    EXPECT_STREQ(options.leaves[0].second.spec(), "('data', 'model')");
    EXPECT_EQ(made.spec("0.bias"), "(None,)");
    EXPECT_EQ(made.spec("1.bias"), "");
    EXPECT_EQ(options.leaves[1].second.gather().to_vector<double>(), std::vector<double>(4, 3));
    options.rules.clear();
    options.saved = made.report();
    EXPECT_EQ(plan(grid, options).report(), made.report());
    deferred_options none;
    none.init = init::shape;
    const tensor shape = deferred({8, 4}, dtype::float32, none);
    plan_options complete;
    complete.leaves = {{"x", shape}, {"y", deferred({8, 4}, dtype::float32, none)}};
    complete.rules = {{"x", "('data', None)"}};
    complete.roots = {shape * complete.leaves[1].second};
    EXPECT_EQ(plan(grid, complete).spec("y"), plan(grid, complete).spec("x"));
    options.saved = "{}";
    status err;
    EXPECT_FALSE(plan(grid, options, err));
    EXPECT_EQ(err.code(), errc::invalid_argument);
  });
}

TEST(Checkpoints, AreSavedByMembersAndReadByAProcessAlone) {
  char folder[] = "/tmp/distag-checkpoint-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  on_members("checkpoints", [&folder](const worker&, const mesh& grid) {
    const tensor x = grid.shard(numbers(4, 4), "('data', 'model')");
    const std::map<std::string, value> saved{{"x", x}, {"step", value(std::int64_t{3})}};
    checkpoint::save(grid, folder, saved);
    const tensor again = grid.shard(full(0, {4, 4}, dtype::float64), "(None, 'data')");
    const std::map<std::string, value> into{{"x", again}};
    EXPECT_EQ(checkpoint::load(grid, folder, into)["step"].as<std::int64_t>(), 3);
    EXPECT_EQ(again.gather().to_vector<double>(), numbers(4, 4).to_vector<double>());
    checkpoint::save_async(grid, folder, saved).wait();
    EXPECT_EQ(checkpoint::load_async(grid, folder, into).get()["step"].as<std::int64_t>(), 3);
  });
  const value alone = checkpoint::load({}, folder);
  EXPECT_EQ(alone["x"].as<tensor>().to_vector<double>(), numbers(4, 4).to_vector<double>());
  EXPECT_EQ(std::system(("rm -r " + std::string(folder)).c_str()), 0);
  status err;
  checkpoint::load({}, folder, {}, err);
  EXPECT_EQ(err.code(), errc::not_found);
}

}  // namespace
