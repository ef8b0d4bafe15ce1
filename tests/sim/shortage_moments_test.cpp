// Memory of one worker's loop is refused from each moment on in turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coll/meshes.h"
#include "sim/graph_checks.h"
#include "sim/random_graph.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

// For each of `counts`, runs `scenario` for each moment from which that many allocations are refused to worker `rank`,
// until a moment is past the last allocation.
void for_each_moment(int32_t rank, const std::vector<uint64_t>& counts, const SimGroupOptions& options,
                     const std::function<void(SimWorkerGroup& group, const std::function<void()>& begin)>& scenario) {
  for (const uint64_t count : counts) {
    bool is_past = false;
    for (uint64_t moment = 0; !is_past; ++moment) {
      SCOPED_TRACE("allocation " + std::to_string(moment) + ", refused " + std::to_string(count) + " times");
      SimWorkerGroup group(1, options);
      scenario(group, [&group, rank, moment, count] {
        group.share_memory_with_loop(rank);
        group.memory(rank).refuse(moment, count);
      });
      is_past = group.memory(rank).refused() == 0;
      if (testing::Test::HasFailure()) return;
    }
  }
}

std::shared_ptr<Future<Value>> call_worker(SimWorkerGroup& group, int32_t from, const std::string& to,
                                           const std::string& function, Values args = {}) {
  CallRequest request;
  request.to = to;
  request.function = function;
  request.args = std::move(args);
  request.timeout = kForever;
  return group.worker(from).rpc().call(std::move(request));
}

// The future is done within ten seconds, with success or for lack of memory.
void expect_end(SimWorkerGroup& group, Future<Value>& future) {
  group.scheduler().run_until([&future] { return future.is_done(); }, 10 * kSecond);
  ASSERT_TRUE(future.is_done());
  if (future.error() == nullptr) return;
  EXPECT_EQ(future.error()->status(), Status::kOutOfMemory) << future.error()->message();
}

TEST(ShortageMoments, AShutdownEndsOnAllSides) {
  for_each_moment(1, {1, 2, 5, 12, 16, 40}, SimGroupOptions(),
                  [](SimWorkerGroup& group, const std::function<void()>& begin) {
                    group.start();
                    begin();
                    const Nanos asked = group.scheduler().now();
                    const auto here = group.worker(0).shutdown(20 * kSecond);
                    const auto there = group.worker(1).shutdown(20 * kSecond);
                    group.scheduler().run_until([&] { return here->is_done() && there->is_done(); }, 300 * kSecond);
                    EXPECT_TRUE(here->is_done());
                    EXPECT_TRUE(there->is_done());
                    EXPECT_LT(group.scheduler().now() - asked, 10 * kSecond);  // not by its deadline
                  });
}

// Only CREDIT reports that earlier requests have begun, and each of them takes all of the room.
TEST(ShortageMoments, RequestsThatWaitForRoomGoOn) {
  constexpr size_t kCalls = 6;
  SimGroupOptions options;
  options.max_in_flight = 1;
  for (const int32_t rank : {0, 1}) {
    for_each_moment(rank, {1, 2, 5}, options, [](SimWorkerGroup& group, const std::function<void()>& begin) {
      std::vector<std::shared_ptr<PendingReply>> held;
      group.worker(1).rpc().register_function("hold", [&held](Invocation& call) { held.push_back(call.defer()); });
      group.start();
      begin();
      std::vector<std::shared_ptr<Future<Value>>> calls;
      for (size_t i = 0; i < kCalls; ++i) {
        CallRequest request;
        request.to = "w1";
        request.function = "hold";
        request.timeout = kForever;
        request.has_time = true;
        calls.push_back(group.worker(0).rpc().call(std::move(request)));
      }
      const auto failed = [&calls] {
        return static_cast<size_t>(
            std::count_if(calls.begin(), calls.end(), [](const auto& call) { return call->is_done(); }));
      };
      EXPECT_TRUE(group.scheduler().run_until([&] { return held.size() + failed() >= kCalls; }, 10 * kSecond))
          << held.size() << " begun, " << failed() << " failed";
      for (const auto& reply : held) reply->finish(Value());
      for (const auto& call : calls) expect_end(group, *call);
    });
  }
}

// The values of the call end, and a retry of a refused message makes no violator of its sender.
TEST(ShortageMoments, ARemoteCreationLosesNobody) {
  for_each_moment(1, {1, 2, 5, 8}, SimGroupOptions(), [](SimWorkerGroup& group, const std::function<void()>& begin) {
    group.worker(1).rpc().register_function("one", [](Invocation& call) { call.set_result(Value(int64_t{1})); });
    group.start();
    begin();
    CallRequest request;
    request.to = "w1";
    request.function = "one";
    const auto made = group.worker(0).rrefs().remote(std::move(request));
    const auto fetched = group.worker(0).rrefs().fetch(made, FetchOptions());
    group.scheduler().run_until([&fetched] { return fetched->is_done(); }, 300 * kSecond);
    EXPECT_TRUE(fetched->is_done());
    if (fetched->is_done() && fetched->error() != nullptr) {
      const std::string& text = fetched->error()->message();
      EXPECT_EQ(fetched->error()->status(), Status::kOutOfMemory) << text;
      EXPECT_EQ(text.find("\"\""), std::string::npos) << text;  // what it names has its name
    }
    group.scheduler().run_for(kSecond);
    for (const std::string& line : group.log_lines()) EXPECT_EQ(line.find(" is lost: "), std::string::npos) << line;
  });
}

// A worker that comes back waits for a member that does not answer, while another calls it already.
void expect_early_calls_to_end(bool is_short_before_they_come) {
  SimGroupOptions options;
  options.size = 3;
  for_each_moment(2, {1, 2, 5}, options, [=](SimWorkerGroup& group, const std::function<void()>& begin) {
    group.start();
    const Incarnation before = group.worker(0).group().membership().find_by_rank(2)->peer.incarnation;
    group.kill(2);
    group.freeze(1);
    Worker& returned = group.restart(2);
    returned.rpc().register_function("one", [](Invocation& call) { call.set_result(Value(int64_t{1})); });
    const auto started = returned.start(60 * kSecond);
    const auto is_known = [&group, before] {
      const auto member = group.worker(0).group().membership().find_by_rank(2);
      return member && member->peer.incarnation != before;
    };
    ASSERT_TRUE(group.scheduler().run_until(is_known, 3 * kSecond));
    if (is_short_before_they_come) begin();
    std::vector<std::shared_ptr<Future<Value>>> calls;
    for (int i = 0; i < 3; ++i) {
      calls.push_back(call_worker(group, 0, "w2", "one"));
    }
    group.scheduler().run_for(kSecond);
    if (!is_short_before_they_come) begin();
    group.thaw(1);
    wait(*started, kForever);
    for (const auto& call : calls) {
      group.scheduler().run_until([&call] { return call->is_done(); }, 10 * kSecond);
      ASSERT_TRUE(call->is_done() || started->error() != nullptr);
      if (!call->is_done() || call->error() == nullptr) continue;
      EXPECT_TRUE(call->error()->status() == Status::kOutOfMemory || started->error() != nullptr)
          << call->error()->message();
    }
  });
}

TEST(ShortageMoments, EarlyMessagesAreHeld) { expect_early_calls_to_end(true); }

TEST(ShortageMoments, EarlyMessagesAreAnswered) { expect_early_calls_to_end(false); }

// Chunks go ahead; then the call gets its number, for which its reference takes memory. The next call ends, too.
TEST(ShortageMoments, ALargeCallWithAReferenceEnds) {
  for_each_moment(0, {1, 2, 3, 5}, SimGroupOptions(), [](SimWorkerGroup& group, const std::function<void()>& begin) {
    group.worker(1).rpc().register_function("take", [](Invocation& call) { call.set_result(Value(int64_t{1})); });
    group.start();
    begin();
    const Value reference(std::shared_ptr<ExternalValue>(group.worker(0).rrefs().create(Value(int64_t{2}))));
    std::vector<std::shared_ptr<Future<Value>>> calls;
    for (int i = 0; i < 2; ++i) {
      calls.push_back(call_worker(group, 0, "w1", "take", {Value::bytes(Value::Bytes(size_t{1200} << 10)), reference}));
    }
    for (const auto& call : calls) expect_end(group, *call);
    group.memory(0).refuse(0, 0);
    for (const ShutdownReport& report : group.shutdown(20 * kSecond)) EXPECT_TRUE(report.clean);
  });
}

// After a gathering that is given up, the next one of the same ranks begins.
TEST(ShortageMoments, GathersOfTheSameRanksEnd) {
  for_each_moment(1, {1, 2, 3, 5}, SimGroupOptions(), [](SimWorkerGroup& group, const std::function<void()>& begin) {
    group.start();
    begin();
    std::vector<std::shared_ptr<Future<Value>>> here;
    std::vector<std::shared_ptr<Future<Value>>> there;  // the last of these may find no counterpart
    for (int round = 0; round < 3; ++round) {
      here.push_back(group.worker(1).group().all_gather(Value(int64_t{1}), std::nullopt, kForever));
      there.push_back(group.worker(0).group().all_gather(Value(int64_t{0}), std::nullopt, kForever));
    }
    for (const auto& gathered : here) expect_end(group, *gathered);
  });
}

TEST(ShortageMoments, OpenCallsEndAndAreCountedOnce) {
  static constexpr int64_t kCalls = 70;  // more than end in one task
  for_each_moment(0, {1, 2, 3}, SimGroupOptions(), [](SimWorkerGroup& group, const std::function<void()>& begin) {
    std::vector<std::shared_ptr<PendingReply>> held;
    group.worker(1).rpc().register_function("later", [&held](Invocation& call) { held.push_back(call.defer()); });
    group.start();
    std::vector<std::shared_ptr<Future<Value>>> calls;
    for (int64_t i = 0; i < kCalls; ++i) {
      calls.push_back(call_worker(group, 0, "w1", "later"));
    }
    group.scheduler().run_for(kSecond);
    begin();
    const auto report = group.worker(0).shutdown(0);
    group.scheduler().run_until([&report] { return report->is_done(); }, 300 * kSecond);
    EXPECT_TRUE(report->is_done());
    if (report->is_done() && report->error() == nullptr) {
      EXPECT_LE(report->value().open_calls, kCalls);
    }
    for (const auto& call : calls) EXPECT_TRUE(call->is_done());
    EXPECT_EQ(group.worker(0).stats().rpc.futures_open, 0u);
    held.clear();
  });
}

// All workers that took part have the gradients, even if the verdict to them finds no memory, and its retry neither.
TEST(ShortageMoments, ACommittedPassIsToldToAll) {
  GraphOptions shape;
  shape.workers = 2;
  const auto reaches_the_other = [](const RandomGraph& graph) {
    const auto gradients = local_gradients_of_repeats(graph, 1);
    return std::any_of(graph.leaves[1].begin(), graph.leaves[1].end(),
                       [&gradients](const Tensor& leaf) { return gradients->find(leaf) != nullptr; });
  };
  uint64_t seed = 1;
  while (!reaches_the_other(RandomGraph(seed, shape))) ++seed;
  const RandomGraph graph(seed, shape);
  const std::shared_ptr<const Gradients> expected = local_gradients_of_repeats(graph, 1);
  size_t committed = 0;
  for_each_moment(
      0, {1, 2, 3, 5, 8}, SimGroupOptions(), [&](SimWorkerGroup& group, const std::function<void()>& begin) {
        register_blocks(group, graph);
        group.start();
        const auto context = group.worker(0).dautograd().create_context();
        const Tensors roots = make_roots(run_distributed(group, graph, context->global_id()), graph.roots[0]);
        begin();
        const auto pass = context->backward_async(roots, BackwardOptions());
        wait(*pass, kForever);
        group.memory(0).refuse(0, 0);
        if (pass->error() != nullptr) {
          EXPECT_EQ(pass->error()->status(), Status::kOutOfMemory) << pass->error()->message();
          return;
        }
        ++committed;
        group.scheduler().run_for(kSecond);
        expect_gradients(group, graph, context->global_id(), *expected);
      });
  EXPECT_GT(committed, 5u);  // the last one of each row has met no refusal
}

// Three calls and the leave: the second call goes in chunks, and the third moves boxes. No member waits for the
// deadline.
TEST(ShortageMoments, CollectivesEndOnAllMembers) {
  size_t fulfilled = 0;
  for (const int32_t victim : {0, 1}) {
    for_each_moment(
        victim, {1, 2, 3, 5}, SimGroupOptions(), [&](SimWorkerGroup& group, const std::function<void()>& begin) {
          group.start();
          layout::MeshRequest request;
          request.shape = {2};
          std::vector<std::shared_ptr<Future<std::shared_ptr<Mesh>>>> made;
          for (const int32_t rank : {0, 1}) made.push_back(group.worker(rank).meshes().create(request, 100 * kSecond));
          for (const auto& one : made) wait(*one, kForever);
          begin();
          std::vector<std::shared_ptr<Future<Tensor>>> results;
          for (const int32_t rank : {0, 1}) {
            Mesh& mesh = *made[static_cast<size_t>(rank)]->value();
            CollectiveCall call;
            call.axes = {0};
            for (const int64_t count : {int64_t{3}, int64_t{40000}}) {
              call.tensor = Tensor::empty(Dtype::kFloat64, {count});
              std::fill_n(call.tensor.mutable_data_as<double>(), count, 1.0);
              results.push_back(mesh.collective(call));
            }
            layout::Spec cut(1);
            cut.dim(0) = {0};
            Tensor shard = Tensor::empty(Dtype::kFloat64, {2});
            std::fill_n(shard.mutable_data_as<double>(), 2, 1.0);
            results.push_back(mesh.redistribute({{4}, shard, cut, layout::Spec(1), "", 0, ""}));
            mesh.leave();
          }
          group.scheduler().run_until(
              [&] {
                return std::all_of(results.begin(), results.end(), [](const auto& one) { return one->is_done(); });
              },
              300 * kSecond);
          group.memory(victim).refuse(0, 0);
          for (const auto& one : results) {
            ASSERT_TRUE(one->is_done());
            if (one->error() != nullptr) {
              EXPECT_EQ(one->error()->status(), Status::kOutOfMemory) << one->error()->message();
            } else {
              ++fulfilled;
            }
          }
          // Whatever failed: each side knows the end of the mesh.
          group.scheduler().run_for(kSecond);
          for (const int32_t rank : {0, 1}) {
            group.loop(rank).run([&] { EXPECT_TRUE(made[static_cast<size_t>(rank)]->value()->parts().end.ended()); });
          }
        });
  }
  EXPECT_GT(fulfilled, 6u);
}

// Each member calls as soon as it has its mesh, so that what it sends may come before the other member has its own. A
// member that has none fails, and the other one, if it has the mesh, does not wait for ever.
TEST(ShortageMoments, AMeshThatOneMemberCannotMakeEndsOnTheOther) {
  size_t failed = 0, had_none = 0;
  for (const int32_t victim : {0, 1}) {
    for_each_moment(victim, {1, 2, 3, 5}, SimGroupOptions(),
                    [&](SimWorkerGroup& group, const std::function<void()>& begin) {
                      group.start();
                      begin();
                      layout::MeshRequest request;
                      request.shape = {2};
                      std::vector<std::shared_ptr<Future<std::shared_ptr<Mesh>>>> made;
                      for (const int32_t rank : {0, 1})
                        made.push_back(group.worker(rank).meshes().create(request, 100 * kSecond));
                      CollectiveCall call;
                      call.axes = {0};
                      call.timeout = kForever;
                      call.tensor = Tensor::empty(Dtype::kFloat64, {3});
                      std::fill_n(call.tensor.mutable_data_as<double>(), 3, 1.0);
                      std::vector<std::shared_ptr<Future<Tensor>>> results(2);
                      const auto is_over = [&](size_t rank) {
                        const auto& other = *made[1 - rank];
                        if (!made[rank]->is_done()) return other.is_done() && other.error() != nullptr;
                        if (made[rank]->error() != nullptr) return true;
                        if (!results[rank]) results[rank] = made[rank]->value()->collective(call);
                        return results[rank]->is_done();
                      };
                      group.scheduler().run_until(
                          [&] {
                            const bool first = is_over(0);
                            return is_over(1) && first;
                          },
                          20 * kSecond);
                      group.memory(victim).refuse(0, 0);
                      for (const size_t rank : {0u, 1u}) {
                        ASSERT_TRUE(is_over(rank)) << rank;
                        const Completion& last = results[rank] ? static_cast<Completion&>(*results[rank]) : *made[rank];
                        if (last.error() == nullptr) continue;
                        ++failed;
                        if (last.error()->message().find("does not have this mesh") != std::string::npos)
                          had_none += last.error()->message().starts_with("mesh \"mesh\": ");
                        else
                          EXPECT_EQ(last.error()->status(), Status::kOutOfMemory) << last.error()->message();
                      }
                    });
  }
  EXPECT_GT(failed, 20u);
  EXPECT_GT(had_none, 4u);
}

}  // namespace
}  // namespace distag::sim
