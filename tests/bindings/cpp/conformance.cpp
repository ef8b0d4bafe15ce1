// Runs the cases of bindings/conformance/cases.json through the C++ binding; and those of ends: what is released,
// closed, left open, forked.
//
// usage: conformance REPOSITORY [WORDS...]     with WORDS, only the cases whose names have one of them
//        conformance --leave CALLS             leaves main with CALLS calls open
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

// A forked child looks for no leaks: what threads of its parent held on their stacks at that moment has no owner there.
static bool is_forked = false;
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return is_forked ? 1 : 0; }

namespace {

using distag::tensor;

void offer_square(const distag::worker& worker) {
  worker.register_function("square", [](const tensor& x) { return x * x; });
}

void no_handles(const json& given) {
  same(distag::handle_count(), given["handles"].get<unsigned>(), "before");
  {
    const tensor x = tensor::of({1.0f, 2.0f}).requires_grad(true);
    x.add_hook([](const tensor& gradient) { return gradient; });
    group ab(offer_square);
    const distag::context context(ab[0]);
    context.backward(context.call<tensor>("b", "square", {x}).sum());
    distag::optimizer(ab[0], "sgd", {x}, {{"lr", 0.1}}).step(context);
    near(ab[0].remote("b", "square", {x}).fetch<tensor>(), json({0.64, 2.56}), 1e-6);
  }
  same(distag::handle_count(), given["handles"].get<unsigned>(), distag::handle_report().c_str());
}

// In the place of a collector: each handle is copied and released between all steps.
void collector(const json& given) {
  group ab(offer_square);
  tensor x = tensor_of(given["x"]).requires_grad(true);
  tensor copy = x;
  x = std::move(copy);
  distag::context context(ab[0]), other = context;
  context = {};
  tensor y = other.call<tensor>("b", "square", {tensor(x)}), loss = y.sum();
  y.close();
  other.backward(tensor(loss));
  loss = {};
  const distag::gradients gradients = other.gradients();
  other = {};
  near(gradients[x], given["gradient"]);
}

void shut_down_twice(const json& given) {
  group ab;
  const auto other = ab[1].shutdown_async(120s);
  same(ab[0].shutdown(120s)["clean"].as<bool>(), given["clean"].get<bool>());
  same(ab[0].shutdown(120s)["clean"].as<bool>(), given["clean"].get<bool>());
  other.get();
  ab[0].close();
  ab[0].close();
}

void use_after_close(const json& given) {
  tensor x = tensor::of({1.0f});
  x.close();
  x.close();
  fails<distag::usage_error>(given, [&] { x + 1; });
  fails<distag::usage_error>(given, [&] { x.to_vector<float>(); });
  const tensor moved = std::move(x);
  fails<distag::usage_error>(given, [&] { moved.relu(); });
  group ab;
  ab[0].close();
  fails<distag::usage_error>(given, [&] { ab[0].call("b", "square", {1}); });
}

void leaving(const json& given) {
  const std::string calls = std::to_string(given["calls"].get<int>());
  for (int i = 0; i < given["runs"].get<int>(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const pid_t child = fork();
    if (child == 0) {
      execl(program.c_str(), program.c_str(), "--leave", calls.c_str(), nullptr);
      _exit(127);
    }
    int how = 0;
    waitpid(child, &how, 0);
    check(WIFEXITED(how), "ended by signal " + std::to_string(WTERMSIG(how)));
    same(WEXITSTATUS(how), given["exit_code"].get<int>(), "exit code");
    check(std::chrono::steady_clock::now() - begin < std::chrono::seconds(given["seconds"].get<int>()), "too slow");
  }
}

void in_child(const json& given, const tensor& x, const distag::worker& worker) {
  fails(given, [&] { x + 1; });
  fails(given, [&] { x.to_vector<float>(); });
  fails(given, [&] { worker.call("b", "square", {2}); });
  group ab(offer_square);
  near(ab[0].call<tensor>("b", "square", {tensor::of(3.0)}).item(), 9);
}

void forked(const json& given) {
  const tensor x = tensor::of({1.0f});
  group ab(offer_square);
  const pid_t child = fork();
  if (child == 0) {
    is_forked = true;
    int code = 1;
    try {
      in_child(given, x, ab[0]);
      code = 0;
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "child: %s\n", failure.what());
    }
    std::exit(code);  // with the parent's worker still there
  }
  int how = 0;
  waitpid(child, &how, 0);
  same(how, 0, "child");
  near(ab[0].call<tensor>("b", "square", {tensor::of(3.0)}).item(), 9);
}

void reports(const json& given) {
  group ab(offer_square);
  const distag::context context(ab[0]);
  context.call("b", "square", {tensor::of(3.0)});
  const distag_stats stats = ab[0].stats();
  check(stats.calls_made >= 1 && ab[1].stats().calls_served >= 1 && stats.calls_open == 0, "stats");
  const json report = json::parse(ab[0].report());
  for (const json& key : given["report"]) check(report.contains(key.get<std::string>()), key.dump());
  check(json::parse(context.report()).is_object(), "a context's report");
  check(json::parse(distag::handle_report()).is_object(), "the report of handles");
  same(context.info().gradient_count, 0u);
}

bool run(std::size_t number, const test_case& tried, const json& given) {
  bool is_ok = false;
  try {
    tried.run(given);
    is_ok = true;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: %s\n", tried.name, failure.what());
  }
  std::printf("%s %zu - %s\n", is_ok ? "ok" : "not ok", number, tried.name);
  std::fflush(stdout);
  return is_ok;
}

}  // namespace

std::vector<test_case> life_cases() {
  return {{"life: everything released leaves no handle", no_handles},
          {"life: a collector between all steps", collector},
          {"life: a worker shut down twice", shut_down_twice},
          {"life: use after close is an error", use_after_close},
          {"life: leaving main with calls open", leaving},
          {"life: a fork", forked},
          {"report: stats and reports parse", reports}};
}

// Half of the calls have a callback; main ends while they run.
int leave_with_calls_open(int calls) {
  static std::atomic<int> answering{0}, done{0};  // for the functions that run until all has ended
  group ab([](const distag::worker& worker) {
    worker.register_function("wait_a_little", [&](const distag::invocation& call) {
      ++answering;
      for (int i = 0; i < 1000 && !call.is_cancelled(); ++i) sched_yield();
      return distag::zeros({4});
    });
  });
  std::vector<distag::future<distag::value>> futures;
  for (int i = 0; i < calls; ++i) {
    futures.push_back(ab[0].call_async("b", "wait_a_little"));
    if (i % 2 == 0) futures.back().on_done([](const distag::future<distag::value>&) { ++done; });
  }
  while (answering == 0) sched_yield();
  static distag::worker longer;  // one that is there until exit
  longer = std::move(ab[0]);
  ab[1].close();
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s REPOSITORY [WORDS...]\n", argv[0]), 2;
  if (std::string(argv[1]) == "--leave") return leave_with_calls_open(std::stoi(argv[2]));
  program = argv[0];
  repository = argv[1];
  std::map<std::string, test_case> table;
  for (const auto& cases : {local_cases(), worker_cases(), life_cases()}) {
    for (const test_case& each : cases) table.emplace(each.name, each);
  }
  std::size_t number = 0, passed = 0;
  const json file = read_json("bindings/conformance/cases.json");
  for (const json& given : file["cases"]) {
    const std::string name = given["name"];
    bool is_wanted = argc == 2;
    for (int i = 2; i < argc; ++i) is_wanted = is_wanted || name.find(argv[i]) != std::string::npos;
    const auto found = table.find(name);
    if (is_wanted && found != table.end() && run(++number, found->second, given)) ++passed;
  }
  std::printf("1..%zu\n", number);
  return passed == number ? 0 : 1;
}
