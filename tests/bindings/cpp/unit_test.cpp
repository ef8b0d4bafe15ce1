// Beyond the cases of bindings/conformance: memory, DLPack, futures, the host executor, options.
#include <gtest/gtest.h>

#include <distag.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <set>
#include <thread>

using namespace std::chrono_literals;
using distag::tensor;
using distag::value;

std::string name_of_plain_elsewhere();  // of the Plain of elsewhere.cpp

namespace {

distag::worker_options alone(const char* name) {
  distag::worker_options options;
  options.name = name;
  options.world_size = 1;
  options.rendezvous = std::string("inproc://unit_") + name;
  return options;
}

// A worker that is a group of its own.
distag::worker started(const distag::worker_options& options) {
  distag::worker worker(options);
  worker.start(120s);
  return worker;
}
distag::worker started(const char* name) { return started(alone(name)); }

// At the end nothing is left, and no handle was released in a wrong way. A worker whose callbacks outlast its release
// is held by the thread that ends it, which is waited for.
class Ends : public testing::Environment {
  void TearDown() override {
    const auto latest = std::chrono::steady_clock::now() + 120s;
    while (distag::handle_count() != 0 && std::chrono::steady_clock::now() < latest) std::this_thread::yield();
    EXPECT_EQ(distag::handle_count(), 0u) << distag::handle_report();
    EXPECT_EQ(distag_get_misuse_count(), 0u);
  }
};
const testing::Environment* const ends = testing::AddGlobalTestEnvironment(new Ends);

TEST(Tensor, take_keeps_the_memory_of_the_vector) {
  std::vector<float> numbers(16 << 20, 1.5f);
  const float* memory = numbers.data();
  const tensor taken = tensor::take(std::move(numbers), {4096, 4096});
  EXPECT_EQ(taken.view<float>().data(), memory);
  EXPECT_TRUE(taken.is_borrowed());
  EXPECT_THROW(taken.write(std::vector<float>(16 << 20)), distag::usage_error);
}

TEST(Tensor, borrowed_memory_is_held_until_nothing_needs_it) {
  auto owner = std::make_shared<std::vector<double>>(6, 2.0);
  const std::weak_ptr<std::vector<double>> seen = owner;
  tensor borrowed = tensor::borrow(owner->data(), owner->size(), {2, 2}, owner, {3, 1});
  auto view = borrowed.slice(0, 0, 1).view<double>();
  owner.reset();
  borrowed.close();
  EXPECT_FALSE(seen.expired());
  view = {};
  EXPECT_TRUE(seen.expired());
}

TEST(Tensor, handles_are_values) {
  tensor a = tensor::of({1.0f});
  const tensor b = a;
  EXPECT_EQ(a, b);
  EXPECT_NE(a, a.clone());
  const tensor c = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: moved from
  EXPECT_EQ(c.id(), b.id());
  EXPECT_EQ(std::hash<tensor>()(b), std::hash<tensor>()(c));
}

TEST(Tensor, arithmetic_is_written_as_numbers_are) {
  const tensor x = tensor::of({1.0, 2.0});
  EXPECT_EQ((-(2 * x + 1) / 2 - x * x).to_vector<double>(), (std::vector<double>{-2.5, -6.5}));
  EXPECT_EQ((1 - x / x).to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(x.sum({0}, true).ndim(), 1u);
  EXPECT_EQ(distag::concat({x, x}, 0).count(), 4u);
  EXPECT_EQ(x.split({1, 1})[1].item(), 2);
}

TEST(Tensor, another_dtype_is_refused) {
  const tensor x = tensor::of({1.0f});
  EXPECT_THROW(x.view<double>(), distag::usage_error);
  EXPECT_THROW(x.to_vector<std::int64_t>(), distag::usage_error);
  distag::status err;
  x.write({1.0}, err);
  EXPECT_EQ(err.code(), distag::errc::invalid_argument);
}

TEST(Tensor, dlpack_there_and_back_shares_the_memory) {
  const tensor x = tensor::of({1.0f, 2.0f});
  const tensor back = tensor::from_dlpack(x.to_dlpack());
  EXPECT_EQ(back.view<float>().data(), x.view<float>().data());
  const tensor legacy = tensor::from_dlpack(x.to_legacy_dlpack(distag::dlpack::share));
  EXPECT_EQ(legacy.view<float>().data(), x.view<float>().data());
  const tensor copy = tensor::from_dlpack(x.to_legacy_dlpack());
  EXPECT_NE(copy.view<float>().data(), x.view<float>().data());
  EXPECT_EQ(copy.to_vector<float>(), x.to_vector<float>());
}

TEST(Status, a_failure_passes_through_a_chain) {
  distag::status err;
  const tensor none = distag::zeros({2, 3}, err).matmul(distag::zeros({4, 5}, err), err);
  const std::string first = err.message();
  const double sum = none.relu(err).sum(err).item(err);
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(first, err.message());
  EXPECT_EQ(err.how_to_go_on(), distag::remedy::usage);
  EXPECT_STREQ(err.name(), "INVALID_ARGUMENT");
  err.clear();
  EXPECT_TRUE(err.ok());
}

struct two_outputs {
  std::vector<tensor> forward(const tensor& a, const tensor& b) { return {a + b, a - b}; }
  std::vector<tensor> backward(const std::vector<tensor>& gradients) {
    EXPECT_FALSE(gradients[1]);  // none reached the second output
    return {gradients[0], tensor()};
  }
};

TEST(CustomOp, has_several_inputs_and_outputs) {
  const tensor a = tensor::of({1.0, 2.0}).requires_grad(true), b = tensor::of({3.0, 5.0}).requires_grad(true);
  const auto made = distag::apply_custom("two_outputs", two_outputs(), {a, b}, 2);
  EXPECT_EQ(made[1].to_vector<double>(), (std::vector<double>{-2, -3}));
  const distag::context context = distag::context::local();
  context.backward(made[0].sum());
  EXPECT_EQ(context.gradient(a).to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(Hook, may_only_look) {
  const tensor x = tensor::of({1.0f}).requires_grad(true);
  int seen = 0;
  x.add_hook([&](const tensor&) { ++seen; });
  const distag::context context = distag::context::local();
  context.backward(x * 3);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(context.gradient(x).item(), 3);
}

TEST(Function, takes_what_its_parameters_say) {
  const distag::worker worker = started("function");
  worker.register_function("f", [](distag::invocation& call, int a, const std::vector<double>& b,
                                   std::optional<std::string> c, const distag::context& within) {
    return std::string(call.caller()) + std::to_string(a) + std::to_string(b.size()) + c.value_or("none") +
           (within ? " recorded" : "");
  });
  const auto call = [&](const distag::arguments& args) { return worker.call<std::string>("function", "f", args); };
  EXPECT_EQ(call({1, std::vector<double>{1, 2}, "text"}), "function12text");
  EXPECT_EQ(call({1, std::vector<double>{}}), "function10none");
  EXPECT_EQ(distag::context(worker).call<std::string>("function", "f", {1, std::vector<double>{}}),
            "function10none recorded");
  EXPECT_THROW(call({1}), distag::usage_error);
  EXPECT_THROW(call({1, std::vector<double>{}, "text", 4}), distag::usage_error);
  try {
    call({1, std::vector<std::string>{"x"}});
    FAIL();
  } catch (const distag::error& failure) {
    EXPECT_NE(std::string(failure.what()).find("f: args[1]"), std::string::npos) << failure.what();
  }
}

TEST(Function, of_the_call_alone_reads_any_arguments_from_it) {
  const distag::worker worker = started("alone");
  worker.register_function("sum", [](const distag::invocation& call, distag::status&) {
    int sum = 0;
    for (std::size_t i = 0; i < call.size(); ++i) sum += call.get<int>(i);
    return sum;
  });
  worker.register_function("third", [](const distag::invocation& call) { return call.get<int>(2); });
  worker.register_function("one", [](const distag::invocation&, int x) { return x; });
  worker.register_function("none", [](const distag::context&) { return 0; });
  const auto call = [&](const char* name, const distag::arguments& args) {
    return worker.call<int>("alone", name, args);
  };
  EXPECT_EQ(call("sum", {}), 0);
  EXPECT_EQ(call("sum", {1, 2, 4}), 7);
  EXPECT_THROW(call("one", {1, 2}), distag::usage_error);
  EXPECT_THROW(call("none", {1}), distag::usage_error);
  try {
    call("third", {1, 2});
    FAIL();
  } catch (const distag::usage_error& failure) {
    EXPECT_NE(std::string(failure.what()).find("third: args[2] is missing: 2 came"), std::string::npos)
        << failure.what();
  }
}

// Code of the host that fails where a failure is told, or where something is let go.
struct WithoutText : std::exception {
  const char* what() const noexcept override { return nullptr; }
};
struct Bomb {
  bool is_armed = true;
  Bomb() = default;
  Bomb(Bomb&& other) noexcept : is_armed(std::exchange(other.is_armed, false)) {}
  ~Bomb() noexcept(false) {
    if (is_armed) throw Bomb();  // which does so again, where it is caught
  }
};

TEST(Function, may_throw_what_fails_itself) {
  const auto worker = started("throws");
  worker.register_function("text", [] { throw WithoutText(); });
  worker.register_function("bomb", [] { throw Bomb(); });
  worker.register_function("double", [](std::int64_t x) { return 2 * x; });
  for (int round = 0; round < 3; ++round) {
    for (const auto& [name, text] : {std::pair("text", "(no text)"), std::pair("bomb", "no std::exception")}) {
      distag::status failure;
      worker.call<void>("throws", name, {}, failure);
      EXPECT_EQ(static_cast<std::int32_t>(failure.code()), DISTAG_E_USER);
      EXPECT_NE(std::string(failure.message()).find(text), std::string::npos) << failure.message();
      EXPECT_EQ(worker.call<std::int64_t>("throws", "double", {4}), 8);
    }
  }
}

// A failure with the code of success is one all the same: of a function, a hook, an op, and of a future's callback.
TEST(Function, that_throws_has_failed_whatever_its_code) {
  const auto worker = started("zero");
  const auto fails = [](auto&& run) {
    distag::status failure;
    run(failure);
    EXPECT_EQ(failure.code(), distag::errc::user);
    EXPECT_NE(std::string(failure.message()).find("it failed"), std::string::npos) << failure.message();
  };
  worker.register_function("f", [] { throw distag::error(0, "it failed"); });
  fails([&](distag::status& err) { worker.call<void>("zero", "f", {}, err); });
  worker.register_function("one", [] { return 1; });
  const auto chained =
      worker.call_async<int>("zero", "one").then([](int) -> int { throw distag::error(0, "it failed"); });
  fails([&](distag::status& err) { chained.get(120s, err); });
  const tensor x = tensor::of({1.0f}).requires_grad(true);
  x.add_hook([](const tensor&) { throw distag::error(0, "it failed"); });
  fails([&](distag::status& err) { distag::context::local().backward(x * 3, err); });
  struct op {
    tensor forward(const tensor&) { throw distag::error(0, "it failed"); }
  };
  fails([&](distag::status& err) { distag::apply_custom("op", op(), {x}, err); });
}

TEST(Function, may_fail_when_it_is_let_go) {
  const auto worker = started("bombs");
  worker.register_function("f", [bomb = Bomb()] { return bomb.is_armed; });
  EXPECT_TRUE(worker.call<bool>("bombs", "f", {}));
  worker.unregister("f");
  const auto future = worker.call_async<bool>("bombs", "nothing", {});
  future.on_done([bomb = Bomb()](const distag::future<bool>&) {});
  EXPECT_THROW(future.get(120s), distag::error);
  { const value object = value::object(std::make_unique<Bomb>()); }
  const tensor x = tensor::of({1.0f}).requires_grad(true);
  x.add_hook([bomb = Bomb()](const tensor&) {});
}

TEST(Function, follows_a_future_that_it_returns) {
  const distag::worker worker = started("follows");
  worker.register_function("double", [](int x) { return 2 * x; });
  worker.register_function("later", [](const distag::invocation& call, int x) {
    return call.call_async<int>("follows", "double", {x}).then([](int found) { return found + 1; });
  });
  EXPECT_EQ(worker.call<int>("follows", "later", {20}), 41);
  worker.register_function("fails",
                           [](const distag::invocation& call) { return call.call_async("follows", "no_such"); });
  EXPECT_THROW(worker.call("follows", "fails"), distag::usage_error);
  worker.unregister("double", 120s);
  EXPECT_THROW(worker.call("follows", "double", {1}), distag::usage_error);
}

TEST(Function, that_fails_has_answered_also_where_it_deferred) {
  distag::reply owed;
  const distag::worker worker = started("both");
  worker.register_function("f", [&](const distag::invocation& call) {
    owed = call.defer();
    throw distag::error(1234, "after all");
  });
  distag::status failure, refused, again;
  worker.call<void>("both", "f", {}, failure);
  EXPECT_EQ(static_cast<std::int32_t>(failure.code()), 1234) << failure.message();
  owed.finish(5, refused);
  EXPECT_EQ(refused.code(), distag::errc::invalid_state) << refused.message();
  owed.fail(failure, again);
  EXPECT_EQ(again.code(), distag::errc::invalid_state) << again.message();
}

TEST(Function, takes_the_value_behind_a_reference) {
  const distag::worker worker = started("behind");
  worker.register_function("sum", [](const tensor& x, int n) { return x.sum().item() * n; });
  const distag::rref x = worker.share(tensor::of({1.0, 2.0})), n = worker.share(7);
  EXPECT_EQ(worker.call<double>("behind", "sum", {x, n}), 21);
  const distag::worker* other = nullptr;
  worker.register_function("name", [&](const distag::invocation& call) {
    const distag::worker here = call.worker();  // its end is not the worker's
    other = &here;
    return std::string(here.name());
  });
  EXPECT_EQ(worker.call<std::string>("behind", "name"), "behind");
  EXPECT_EQ(worker.call<std::string>("behind", "name"), "behind");
}

TEST(Future, chains_and_tells_failures) {
  const distag::worker worker = started("chains");
  worker.register_function("one", [] { return 1; });
  const auto failed = worker.call_async<int>("chains", "no_such").then([](int x) { return x; });
  EXPECT_THROW(failed.get(), distag::usage_error);
  const auto seen = worker.call_async<int>("chains", "no_such").then([](const distag::future<int>& done) {
    distag::status err;
    done.get(err);
    return std::string(err.name());
  });
  EXPECT_EQ(seen.get(120s), "NOT_FOUND");
  const auto thrown = worker.call_async<int>("chains", "one").then([](int) -> int { throw std::runtime_error("no"); });
  EXPECT_THROW(thrown.get(), distag::user_error);
  std::promise<int> told;
  worker.call_async<int>("chains", "one").on_done([&](const distag::future<int>& done) { told.set_value(done.get()); });
  EXPECT_EQ(told.get_future().get(), 1);
  const distag::future<void> void_after = worker.call_async<int>("chains", "one").then([](int) {});
  EXPECT_EQ(void_after.then([] { return 5; }).get(), 5);
}

#ifdef DISTAG_HPP_COROUTINES
struct task {
  struct promise_type {
    task get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

task ask(const distag::worker& worker, std::promise<std::string>& told) {
  const int found = co_await worker.call_async<int>("awaits", "one");
  try {
    co_await worker.call_async<int>("awaits", "no_such");
  } catch (const distag::error& failure) {
    told.set_value(std::to_string(found) + failure.name());
  }
}

TEST(Future, is_awaited) {
  const distag::worker worker = started("awaits");
  worker.register_function("one", [] { return 1; });
  std::promise<std::string> told;
  ask(worker, told);
  EXPECT_EQ(told.get_future().get(), "1NOT_FOUND");
}
#endif

TEST(HostExecutor, runs_functions_in_poll) {
  distag::worker_options options = alone("host");
  options.executor = distag::executor::host;
  const distag::worker worker = started(options);
  std::thread::id ran;
  worker.register_function("where", [&] { ran = std::this_thread::get_id(); });
  const auto future = worker.call_async<void>("host", "where");
  EXPECT_GE(worker.fd(), 0);
  worker.wait(120s);
  EXPECT_EQ(worker.poll(), 1u);
  EXPECT_EQ(ran, std::this_thread::get_id());
  future.get(120s);
  ran = {};
  worker.call("host", "where");  // the wait runs it
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(HostExecutor, gives_events) {
  distag::worker_options options = alone("events");
  options.executor = distag::executor::host;
  const distag::worker worker = started(options);
  worker.offer("ask", 7);
  const auto future = worker.call_async<int>("events", "ask", {20});
  future.post(worker, 8);
  int answered = 0, done = 0;
  while (done == 0) {
    auto event = worker.take_event(120s);
    ASSERT_TRUE(event);
    if (event->kind == distag::event_kind::call) {
      EXPECT_EQ(event->tag, 7u);
      event->call.finish(event->call.get<int>(0) + 1);
      ++answered;
    } else {
      EXPECT_EQ(event->tag, 8u);
      EXPECT_EQ(event->done.get().as<int>(), 21);
      ++done;
    }
  }
  EXPECT_EQ(answered, 1);
  EXPECT_FALSE(worker.take_event(0ns));
  worker.call_async<int>("events", "ask", {20});
  { const auto dropped = worker.take_event(120s); }  // fails its call
}

TEST(Options, socket_engine_names_what_carries_sockets) {
  char folder[] = "/tmp/distag-unit-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  for (const auto& [engine, name] :
       {std::pair(distag::socket_engine::zmq, "zmq"), std::pair(distag::socket_engine::zmtp, "zmtp")}) {
    distag::worker_options options = alone("socket_engine");
    options.rendezvous = std::string("file://") + folder;
    options.socket_engine = engine;
    const distag::worker worker = started(options);
    EXPECT_NE(worker.report().find(std::string("\"engine\": \"") + name + '"'), std::string::npos);
    worker.start_trace(folder);
    { const distag::trace_span span = worker.trace("step"); }
    worker.stop_trace();
    EXPECT_TRUE(std::filesystem::exists(std::string(folder) + "/socket_engine.trace.json"));
    EXPECT_NE(worker.group_report().find("\"silent\":null"), std::string::npos);
    EXPECT_NE(worker.metrics().find("\ndistag_calls_made_total{worker=\""), std::string::npos);
  }
  std::filesystem::remove_all(folder);
}

TEST(Calls, carry_the_traceparent_of_the_call_being_answered) {
  const std::string given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const distag::worker worker = started(alone("traceparent"));
  worker.register_function("last", [](const distag::invocation& call) -> std::string {
    return call.traceparent() == nullptr ? "none" : call.traceparent();
  });
  worker.register_function(
      "ask", [](const distag::invocation& call) { return call.call<std::string>("traceparent", "last"); });
  distag::call_options options;
  EXPECT_EQ(worker.call<std::string>("traceparent", "ask", {}, options), "none");
  options.traceparent = given.c_str();
  EXPECT_EQ(worker.call<std::string>("traceparent", "ask", {}, options), given);
  options.traceparent = "00-bad";
  EXPECT_EQ(worker.call<std::string>("traceparent", "ask", {}, options), "none");
  EXPECT_EQ(worker.stats().traceparents_dropped, 1u);
}

TEST(Options, no_lane_leaves_sockets_alone) {
  char folder[] = "/tmp/distag-unit-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  distag::worker_options options = alone("no_lane");
  options.rendezvous = std::string("file://") + folder;
  options.no_lane = true;
  {
    const distag::worker worker = started(options);
    EXPECT_NE(worker.report().find("\"why\": \"the worker's option no_lane\""), std::string::npos);
  }
  std::filesystem::remove_all(folder);
}

class counting_memory : public distag::memory {
 public:
  std::atomic<int> blocks{0}, all{0};
  void* allocate(std::size_t size, std::size_t alignment) override {
    ++blocks, ++all;
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  }
  void deallocate(void* block, std::size_t, std::size_t) override {
    --blocks;
    std::free(block);
  }
};

TEST(Options, callbacks_and_memory_are_used) {
  const auto memory = std::make_shared<counting_memory>();
  std::atomic<int> members{0}, threads{0}, lines{0};
  {
    distag::worker_options options = alone("options");
    options.memory = memory;
    options.log_level = distag::log_level::debug;
    options.on_log = [&](distag::log_level, const char*) { ++lines; };
    options.on_member = [&](const distag::member& seen) { members += seen.name == "options" ? 1 : 0; };
    options.on_thread_start = [&](const char*) { ++threads; };
    options.on_thread_stop = [&](const char*) { --threads; };
    const distag::worker worker = started(options);
    worker.register_function("echo", [](const tensor& x) { return x; });
    EXPECT_EQ(worker.call<tensor>("options", "echo", {distag::ones({100000})}).mean().item(), 1);
    EXPECT_EQ(worker.member("options").rank, 0);
    EXPECT_EQ(worker.ranks(), std::vector<std::int32_t>{0});
    EXPECT_EQ(worker.all_gather("x", {}, 120s)[0].as<std::string>(), "x");
    EXPECT_TRUE(worker.shutdown(120s)["clean"].as<bool>());
  }
  EXPECT_GE(members, 1);
  EXPECT_EQ(threads, 0);
  EXPECT_EQ(memory->blocks, 0);
}

TEST(Options, that_are_refused_say_why) {
  distag::worker_options options = alone("no space in names");
  EXPECT_THROW(distag::worker{options}, distag::usage_error);
  distag::status err;
  const distag::worker none(options, err);
  EXPECT_FALSE(none);
  none.start(err);  // passes through
  EXPECT_EQ(err.code(), distag::errc::invalid_argument);
}

struct Counter {
  int count = 0;
};

// A mistake of a user is an error that names the place, and the worker goes on.
TEST(BadInput, is_refused_by_its_place) {
  const distag::worker worker = started("refuses");
  worker.register_function("echo", [](value x) { return x; });
  worker.register_function("small", [](int x) { return x; });
  worker.register_function("layers", [](std::map<std::string, std::vector<tensor>> x) { return x.size(); });
  worker.register_function("maybe", [](int x, std::optional<int> y) { return x + y.value_or(0); });
  worker.register_function("float32", [](float x) { return x; });
  worker.register_function("integers", [](std::map<std::string, std::vector<std::int64_t>> x) { return x.size(); });
  worker.register_function("doubles", [](std::map<std::string, std::vector<double>> x) { return x.size(); });
  worker.register_function("float64", [](double x) { return x; });
  const std::int64_t odd = (std::int64_t{1} << 53) + 1;
  const std::map<std::string, std::vector<value>> mixed{{"layers", {1, "text"}}};
  worker.register_function("nothing", [] {});
  worker.register_function("empty", [] { return tensor(); });
  worker.register_function("make", [] { return std::make_unique<Counter>(); });
  worker.register_function("use", [](Counter& counter) { return ++counter.count; });
  worker.register_function("own", [](tensor x) { return x; });
  const std::string nul("a\0b", 3);
  const auto call = [&](const char* name, auto x) { worker.call<value>("refuses", name, {1, x}); };
  const auto call_one = [&](const char* name, auto x) { return worker.call<int>("refuses", name, {x}); };
  const distag::rref made = worker.remote("refuses", "make", {});
  const std::vector<std::pair<std::string, std::function<void()>>> cases = {
      {"matmul: inner sizes 3 and 4 differ",
       [&] {
         distag::zeros({2, 3}).matmul(distag::zeros({4, 5}));
       }},
      {"the tensor has another dtype: cast it first", [&] { distag::zeros({2}).view<double>(); }},
      {"float32[3] needs 12",
       [&] {
         tensor::of(std::vector<float>{1, 2}, {3});
       }},
      {"args[1]: a text with NUL", [&] { call("echo", nul); }},
      {"args[1].layers[0]: a text with NUL",
       [&] {
         call("echo", std::map<std::string, std::vector<std::string>>{{"layers", {nul}}});
       }},
      {"args[1].layers: a key with NUL after \"a\"",
       [&] {
         call("echo", std::map<std::string, std::map<std::string, int>>{{"layers", {{nul, 1}}}});
       }},
      {"args[1][0]: an integer that does not fit", [&] { call("echo", std::vector<std::uint64_t>{1ULL << 63}); }},
      {"args[1]: an empty tensor", [&] { call("echo", tensor()); }},
      {"args[1]: an empty value", [&] { call("echo", value()); }},
      {"small: args[0]: an integer that does not fit: 1099511627776",
       [&] { call_one("small", std::int64_t{1} << 40); }},
      {"small: args[0]: distag_value_get_int64: the value is a text", [&] { call_one("small", "1"); }},
      {"small takes 1 argument, 2 came", [&] { call("small", 2); }},
      {"maybe takes 1 to 2 arguments, 0 came", [&] { worker.call<value>("refuses", "maybe", {}); }},
      {"float32: args[0]: a number that does not fit: 1e+300", [&] { call_one("float32", 1e300); }},
      {"float64: args[0]: an integer that would lose digits as a float: 9007199254740993",
       [&] { call_one("float64", odd); }},
      {"doubles: args[0].layers[1]: an integer that would lose digits as a float: 9007199254740993",
       [&] {
         call_one("doubles", std::map<std::string, std::vector<std::int64_t>>{{"layers", {1, odd}}});
       }},
      {"integers: args[0].layers[1]: distag_value_get_int64: the value is a text",
       [&] { call_one("integers", mixed); }},
      {"doubles: args[0].layers[1]: distag_value_get_float64: the value is a text",
       [&] { call_one("doubles", mixed); }},
      {"layers: args[0].conv[1]: distag_value_get_tensor: the value is an int64",
       [&] {
         call_one("layers", std::map<std::string, std::vector<value>>{{"conv", {tensor::of({1.0}), 5}}});
       }},
      {"the value is null", [&] { worker.call<int>("refuses", "nothing", {}); }},
      {"distag_invocation_return: value is NULL", [&] { worker.call<value>("refuses", "empty", {}); }},
      {"null is wanted", [&] { worker.call<std::nullptr_t>("refuses", "echo", {5}); }},
      {"the value is an int64, not a tensor", [&] { worker.call<tensor>("refuses", "small", {5}); }},
      {"argument 0 is wanted as an object, but an int64 came", [&] { call_one("use", 5); }},
      {"an object of type \"" + distag::detail::type_name<Counter>() + "\" cannot travel",
       [&] { worker.call<value>("refuses", "make", {}); }},
      {"argument 0 is wanted as a tensor, but a", [&] { call_one("own", made); }},
  };
  for (const auto& [part, run] : cases) {
    try {
      run();
      ADD_FAILURE() << part << ": nothing was refused";
    } catch (const distag::usage_error& refused) {
      EXPECT_NE(std::string(refused.what()).find(part), std::string::npos) << part << ", but " << refused.what();
    }
  }
  EXPECT_EQ(worker.call<std::nullptr_t>("refuses", "nothing", {}), nullptr);
  EXPECT_EQ(call_one("use", made) + call_one("use", made), 3);
}

TEST(Worker, leaves_when_it_ends_and_waits_for_its_functions) {
  std::atomic<bool> runs{false}, ended{false};
  distag::future<void> open;
  {
    const distag::worker worker = started("ends");
    worker.register_function("long", [&](const distag::invocation& call) {
      runs = true;
      while (!call.is_cancelled()) std::this_thread::yield();
      ended = true;
    });
    open = worker.call_async<void>("ends", "long");
    while (!runs) std::this_thread::yield();
  }
  EXPECT_TRUE(ended);
  EXPECT_THROW(open.get(), distag::gave_up_error);
}

TEST(Handles, that_lack_something_say_what) {
  const distag::worker none;
  const distag::context local = distag::context::local();
  const distag::invocation empty;
  const auto says = [](const std::string& part, auto&& run) {
    distag::status err, first;
    run(err);
    EXPECT_EQ(err.code(), distag::errc::invalid_argument);
    EXPECT_NE(std::string(err.message()).find(part), std::string::npos) << part << ", but " << err.message();
    first.set(1042, "the first failure");
    run(first);
    EXPECT_STREQ(first.message(), "the first failure");
  };
  const std::string call = "call \"f\": context::local() has no worker: make the context of one";
  says(call, [&](distag::status& err) { EXPECT_EQ(local.call<int>("w", "f", {1}, err), 0); });
  says(call, [&](distag::status& err) { EXPECT_FALSE(local.call_async<int>("w", "f", err)); });
  says(call, [&](distag::status& err) { EXPECT_FALSE(local.remote("w", "f", err)); });
  says("distag_call: worker is NULL", [&](distag::status& err) { none.call("w", "f", err); });
  says("context: the worker is empty; context::local() takes none",
       [&](distag::status& err) { EXPECT_FALSE(distag::context(none, err)); });
  says("invocation::get: the invocation is empty", [&](distag::status& err) { EXPECT_EQ(empty.get<int>(0, err), 0); });
  says("invocation is NULL", [&](distag::status& err) { EXPECT_FALSE(empty.get<tensor>(0, err)); });
  says(
      "context is NULL: distag_context_create makes one (in C++ distag::context with its worker, or "
      "distag::context::local())",
      [](distag::status& err) { EXPECT_FALSE(distag::context().gradients(err)); });
}

TEST(Context, gives_gradients_with_a_history) {
  const tensor x = tensor::of({2.0, -1.0}).requires_grad(true);
  const distag::context first = distag::context::local(), second = distag::context::local();
  distag::backward_options how;
  how.create_graph = true;
  first.backward((x * x * x).sum(), how);
  second.backward(first.gradient(x).sum());
  EXPECT_EQ(second.gradient(x).to_vector<double>(), (std::vector<double>{12, -6}));
}

TEST(Environment, is_the_place_that_a_launcher_gives) {
  distag::status err;
  for (const char* name : {"DISTAG_RANK", "DISTAG_WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK"}) unsetenv(name);
  setenv("RANK", "2", 1);
  EXPECT_EQ(distag::get_environment(err).rank, -1);
  EXPECT_NE(std::string(err.message()).find("WORLD_SIZE (RANK is set)"), std::string::npos);
  setenv("WORLD_SIZE", "3", 1);
  const distag::environment place = distag::get_environment();
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.world_size, 3);
  EXPECT_EQ(place.local_rank, -1);
  EXPECT_EQ(place.launcher, "torchrun");
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
}

TEST(Optimizer, clips_saves_and_loads) {
  const tensor weight = tensor::of({3.0, 4.0}).requires_grad(true);
  const distag::optimizer adam("adam", {weight}, {{"lr", 0.5}});
  const distag::context context = distag::context::local();
  context.backward((weight * weight).sum());
  EXPECT_NEAR(adam.clip(context, 1), 10, 1e-9);
  adam.step(context);
  const value state = adam.save();
  const auto before = weight.to_vector<double>();
  EXPECT_NEAR(before[0], 2.5, 1e-6);
  adam.load(state);
  EXPECT_EQ(adam.stepped_ranks(), std::vector<std::int32_t>{-1});
  EXPECT_THROW(adam.set("no_such", 1), distag::usage_error);
}

template <class T>
struct Layer {
  int size = 7;
};
struct Plain {};

TEST(Value, names_each_type_of_objects) {
  using distag::detail::type_name;
  EXPECT_EQ(type_name<int>(), "int");
  EXPECT_EQ(type_name<distag::tensor>(), "distag::tensor");
  EXPECT_EQ(type_name<std::vector<int>>(), "std::vector<int>");
  EXPECT_EQ((type_name<std::array<int, 3>>()), "std::array<int, 3>");
  const std::vector<std::string> names = {
      type_name<int>(),           type_name<const int>(),     type_name<long>(),
      type_name<unsigned>(),      type_name<float>(),         type_name<double>(),
      type_name<std::string>(),   type_name<Plain>(),         type_name<std::vector<std::string>>(),
      type_name<Layer<int>>(),    type_name<Layer<long>>(),   type_name<Layer<std::string>>(),
      type_name<Layer<int[2]>>(), type_name<Layer<int[3]>>(), name_of_plain_elsewhere()};
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(Value, gives_an_object_as_its_own_type_only) {
  const value five = value::object(std::make_unique<int>(5));
  EXPECT_EQ(*five.object<int>(), 5);
  EXPECT_THROW(five.object<long>(), distag::usage_error);
  EXPECT_THROW(five.object<Layer<int>>(), distag::usage_error);
  const distag::worker worker = started("types");
  worker.register_function("make", [] { return std::make_unique<Layer<int>>(); });
  worker.register_function("int", [](Layer<int>& layer) { return layer.size; });
  worker.register_function("long", [](Layer<long>& layer) { return layer.size; });
  const distag::rref made = worker.remote("types", "make", {});
  EXPECT_EQ(worker.call<int>("types", "int", {made}), 7);
  EXPECT_THROW(worker.call<int>("types", "long", {made}), distag::usage_error);
  EXPECT_EQ(made.object<Layer<int>>()->size, 7);
  EXPECT_THROW(made.object<Layer<long>>(), distag::usage_error);
}

TEST(Value, converts_containers) {
  const std::map<std::string, std::vector<std::string>> given{{"a", {"x", "y"}}, {"b", {}}};
  EXPECT_EQ((value(given).as<std::map<std::string, std::vector<std::string>>>()), given);
  EXPECT_EQ((value(std::make_tuple(1, std::string("x"), true)).as<std::tuple<int, std::string, bool>>()),
            std::make_tuple(1, std::string("x"), true));
  EXPECT_EQ(value(std::vector<double>{1, 2}).as<std::vector<double>>(), (std::vector<double>{1, 2}));
  EXPECT_THROW(value(300).as<std::uint8_t>(), distag::usage_error);
  EXPECT_THROW(value(-1).as<std::uint64_t>(), distag::usage_error);
  EXPECT_THROW(value(~std::uint64_t{0}), distag::usage_error);
  EXPECT_THROW((value(1).as<std::vector<int>>()), distag::usage_error);
  EXPECT_THROW(value(1e39).as<float>(), distag::usage_error);
  EXPECT_THROW(value(1e400L), distag::usage_error);
  EXPECT_EQ(value(-HUGE_VAL).as<float>(), -HUGE_VALF);
  EXPECT_EQ((value(std::vector<value>{1, 2.5}).as<std::vector<double>>()), (std::vector<double>{1, 2.5}));
  EXPECT_TRUE(value(nullptr).is_null());
  EXPECT_FALSE(value(given)["none"]);
}

TEST(Value, keeps_all_digits_of_integers) {
  const std::int64_t exact = std::int64_t{1} << 53, odd = exact + 1;
  const auto largest = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t each : {exact, -exact, exact + 2, least}) {
    EXPECT_EQ(value(each).as<double>(), static_cast<double>(each));
    EXPECT_EQ(value(std::vector{each}).as<std::vector<double>>(), std::vector{static_cast<double>(each)});
  }
  for (const std::int64_t each : {odd, -odd, largest}) {
    EXPECT_THROW(value(each).as<double>(), distag::usage_error);
    EXPECT_THROW(value(each).as<std::optional<double>>(), distag::usage_error);
    EXPECT_THROW(value(std::vector{each}).as<std::vector<double>>(), distag::usage_error);
    EXPECT_THROW((value(std::vector{each}).as<std::tuple<double>>()), distag::usage_error);
    EXPECT_EQ(value(each).as<long double>(), static_cast<long double>(each));
    EXPECT_EQ(value(std::vector{each}).as<std::vector<std::int64_t>>(), std::vector{each});
  }
  EXPECT_EQ(value(1 << 24).as<float>(), 16777216.f);
  EXPECT_THROW(value((1 << 24) + 1).as<float>(), distag::usage_error);
  EXPECT_THROW(value(std::vector{(1 << 24) + 1}).as<std::vector<float>>(), distag::usage_error);
  const std::vector<double> large{1e300, -HUGE_VAL, 9007199254740993.0};
  EXPECT_EQ(value(large).as<std::vector<double>>(), large);
}

}  // namespace
