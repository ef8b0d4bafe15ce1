// Cases with workers: calls, values, backward passes through several workers, objects.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "support.h"

namespace {

using distag::invocation;
using distag::tensor;
using distag::value;

void offer_double(const distag::worker& worker) {
  worker.register_function("double", [](std::int64_t x) { return x * 2; });
}
void offer_echo(const distag::worker& worker) {
  worker.register_function("echo", [](const value& x) { return x; });
}
void offer_square(const distag::worker& worker) {
  worker.register_function("square", [](const tensor& x) { return x * x; });
}

// Raised once, waited for by others.
class flag {
 public:
  void raise() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_up_ = true;
    changed_.notify_all();
  }
  bool wait(std::chrono::milliseconds timeout = 120s) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, timeout, [this] { return is_up_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_up_ = false;
};

void call_each_other(const json& given) {
  group ab(offer_double);
  same(ab[0].call<int>("b", "double", {given["argument"].get<int>()}), given["answer"].get<int>());
  same(ab[1].call<int>("a", "double", {given["argument"].get<int>()}), given["answer"].get<int>());
}

void async_call(const json& given) {
  group ab(offer_double);
  std::vector<distag::future<int>> futures;
  for (const json& each : given["arguments"]) {
    futures.push_back(ab[0].call_async<int>("b", "double", {each.get<int>()}));
  }
  distag::wait_all(futures, 120s);
  for (std::size_t i = 0; i < futures.size(); ++i) same(futures[i].get(), given["answers"][i].get<int>());
}

void stays(const json& given) {
  group ab(offer_echo);
  const distag::rref made = ab[0].remote("b", "echo", {given["made"].get<std::vector<int>>()});
  same(std::string(made.owner()) == "b", true);
  same(made.is_owner(), false);
  same(made.fetch<std::vector<int>>({120s}) == given["fetched"].get<std::vector<int>>(), true);
}

void nested(const json& given) {
  group ab([](const distag::worker& worker) {
    offer_double(worker);
    worker.register_function(
        "ask_back", [](const invocation& call, int x) { return call.call<int>(call.caller(), "double", {x}) + 1; });
  });
  same(ab[0].call<int>("b", "ask_back", {given["argument"].get<int>()}), given["answer"].get<int>());
}

void at_once(const json& given) {
  group ab(offer_double);
  const int calls = given["calls"], callers = given["callers"];
  std::atomic<int> next{0}, sum{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&] {
      for (int each = next++; each < calls; each = next++) sum += ab[0].call<int>("b", "double", {each});
    });
  }
  for (std::thread& each : threads) each.join();
  same(sum.load(), given["sum"].get<int>());
}

void raises(const json& given) {
  group ab([](const distag::worker& worker) {
    worker.register_function("find", [] { throw std::out_of_range("no such user"); });
  });
  fails<distag::user_error>(given, [&] { ab[0].call("b", "find"); });
}

void own_status(const json& given) {
  group ab([&](const distag::worker& worker) {
    const int code = given["status"];
    worker.register_function("refuse", [code] { throw distag::error(code, "not today"); });
    worker.register_function("pass_on", [](const invocation& call) { return call.call("b", "refuse"); });
  });
  fails<distag::user_error>(given, [&] { ab[0].call("b", "refuse"); });
  fails<distag::user_error>(given, [&] { ab[0].call("a", "pass_on"); });
}

void unknown(const json& given) {
  group ab;
  fails<distag::usage_error>(given, [&] { ab[0].call("b", given["function"].get<std::string>()); });
}

void deadline(const json& given) {
  flag release;
  group ab([&](const distag::worker& worker) { worker.register_function("wait", [&] { release.wait(); }); });
  fails<distag::gave_up_error>(
      given, [&] { ab[0].call("b", "wait", {}, {std::chrono::milliseconds(given["timeout_ms"].get<int>())}); });
  release.raise();
}

void cancellation(const json& given) {
  flag began, heard;
  group ab([&](const distag::worker& worker) {
    worker.register_function("wait", [&](const invocation& call) {
      began.raise();
      while (!call.is_cancelled()) std::this_thread::yield();
      heard.raise();
    });
  });
  const auto future = ab[0].call_async("b", "wait");
  check(began.wait(), "it did not begin");
  future.cancel();
  fails<distag::gave_up_error>(given, [&] { future.get(); });
  check(heard.wait(), "the callee did not hear");
}

void deferred(const json& given) {
  std::thread thread;
  group ab([&](const distag::worker& worker) {
    worker.register_function("later", [&](const invocation& call) {
      thread = std::thread([owed = call.defer(), answer = given["answer"].get<std::string>()] { owed.finish(answer); });
    });
  });
  same(ab[0].call<std::string>("b", "later", {}, {120s}) == given["answer"].get<std::string>(), true);
  thread.join();
}

void another_job(const json& given) {
  group ab(offer_double), cd(offer_double, {"c", "d"});
  same(cd[0].call<int>("d", "double", {2}), 4);
  fails<distag::usage_error>(given, [&] { ab[0].call("c", "double", {1}); });
}

value value_of(const json& given) {
  switch (given.type()) {
    case json::value_t::null:
      return nullptr;
    case json::value_t::boolean:
      return given.get<bool>();
    case json::value_t::number_unsigned:
    case json::value_t::number_integer:
      return given.get<std::int64_t>();
    case json::value_t::number_float:
      return given.get<double>();
    case json::value_t::string:
      return given.get<std::string>();
    case json::value_t::array: {
      std::vector<value> items;
      for (const json& each : given) items.push_back(value_of(each));
      return items;
    }
    default: {
      std::map<std::string, value> items;
      for (const auto& [key, each] : given.items()) items[key] = value_of(each);
      return items;
    }
  }
}

json json_of(const value& given) {
  json found;
  switch (given.kind()) {
    case distag::value_kind::null_:
      return nullptr;
    case distag::value_kind::bool_:
      return given.as<bool>();
    case distag::value_kind::int64:
      return given.as<std::int64_t>();
    case distag::value_kind::float64:
      return given.as<double>();
    case distag::value_kind::text:
      return given.as<std::string>();
    case distag::value_kind::list:
      found = json::array();
      for (std::size_t i = 0; i < given.size(); ++i) found.push_back(json_of(given[i]));
      return found;
    default:
      found = json::object();
      for (std::size_t i = 0; i < given.size(); ++i) found[given.key(i)] = json_of(given[i]);
      return found;
  }
}

void every_kind(const json& given) {
  group ab(offer_echo);
  for (const json& each : given["values"]) {
    const json found = json_of(ab[0].call("b", "echo", {value_of(each)}));
    same(found.dump() == each.dump(), true, each.dump().c_str());
  }
  same(std::signbit(ab[0].call<double>("b", "echo", {-0.0})), true);
  for (const json& digits : given["bytes_hex"]) {
    distag::bytes data;
    const std::string text = digits;
    for (std::size_t i = 0; i < text.size(); i += 2) {
      data.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
    }
    same(ab[0].call<distag::bytes>("b", "echo", {data}) == data, true);
  }
  near(ab[0].call<tensor>("b", "echo", {tensor_of(given["tensor"])}), given["tensor"]);
  const std::map<std::string, int> kept{{"kept", 1}};
  const distag::rref shared = ab[0].share(kept);
  const auto back = ab[0].call<std::vector<distag::rref>>("b", "echo", {std::vector<distag::rref>{shared}});
  same(back[0] == shared, true);
  same(back[0].local<std::map<std::string, int>>() == kept, true);
  using pair = std::tuple<std::string, std::optional<double>>;
  same(ab[0].call<pair>("b", "echo", {pair("x", std::nullopt)}) == pair("x", std::nullopt), true);
}

void depth(const json& given) {
  value nested_lists = "leaf";
  for (int i = 0; i < given["depth"].get<int>(); ++i) nested_lists = std::vector<value>{nested_lists};
  group ab(offer_echo);
  same(json_of(ab[0].call("b", "echo", {nested_lists})).dump() == json_of(nested_lists).dump(), true);
  fails<distag::usage_error>(given, [&] { ab[0].call("b", "echo", {std::vector<value>{nested_lists}}); });
}

void big_integer(const json& given) {
  const std::int64_t number = given["value"];
  group ab(offer_echo);
  same(ab[0].call<std::int64_t>("b", "echo", {number}), number);
  same(ab[0].call<std::vector<std::int64_t>>("b", "echo", {std::vector<std::int64_t>{number}})[0], number);
  fails<distag::usage_error>(json{{"status", 10}}, [&] { ab[0].call<int>("b", "echo", {number}); });
}

void not_a_number(const json&) {
  group ab(offer_echo);
  same(std::isnan(ab[0].call<double>("b", "echo", {std::nan("")})), true);
}

void nul(const json& given) {
  group ab(offer_echo);
  fails<distag::usage_error>(given, [&] { ab[0].call("b", "echo", {std::string("a\0b", 3)}); });
}

void many_bytes(const json& given) {
  distag::bytes data(given["size"].get<std::size_t>());
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i % 256);
  group ab(offer_echo);
  same(ab[0].call<distag::bytes>("b", "echo", {data}) == data, true);
}

struct layer {};

void path(const json& given) {
  json expected = given;
  expected["message_has"] = {given["path"]};
  group ab(offer_echo);
  const std::map<std::string, std::vector<value>> named{{"layers", {value::object(std::make_unique<layer>())}}};
  fails<distag::usage_error>(expected, [&] { ab[0].call("b", "echo", {1, named}); });
}

void two_workers(const json& given) {
  const tensor x = tensor_of(given["x"]).requires_grad(true);
  group ab(offer_square);
  const distag::context context(ab[0]);
  const tensor loss = context.call<tensor>("b", "square", {x}).sum();
  near(loss.item(), given["loss"]);
  context.backward(loss);
  near(context.gradient(x), given["gradient"]);
}

void there_and_back(const json& given) {
  const tensor x = tensor_of(given["x"]).requires_grad(true);
  group ab([](const distag::worker& worker) {
    offer_square(worker);
    worker.register_function("twice_square", [](const invocation& call, const tensor& given_x) {
      return call.call<tensor>("a", "square", {given_x}) * 2;
    });
  });
  const distag::context context(ab[0]);
  const tensor loss = context.call<tensor>("b", "twice_square", {x}).sum();
  near(loss.item(), given["loss"]);
  context.backward(loss);
  near(context.gradient(x), given["gradient"]);
}

void both_sides(const json& given) {
  const tensor weight = tensor_of(given["weight"]).requires_grad(true), x = tensor_of(given["x"]).requires_grad(true);
  distag::context kept;
  group ab([&](const distag::worker& worker) {
    worker.register_function("scale", [&](const distag::context& within, const tensor& given_x) {
      kept = within;
      return given_x * weight;
    });
    worker.register_function("gradient", [&] { return kept.gradient(weight); });
  });
  const distag::context context(ab[0]);
  context.backward(context.call<tensor>("b", "scale", {x}).sum());
  near(context.gradient(x), given["gradient_of_x"]);
  near(ab[0].call<tensor>("b", "gradient"), given["gradient_of_weight"]);
  kept = {};
}

struct broken {
  tensor forward(const tensor& x) { return x * 1; }
  tensor backward(const tensor&) { throw std::runtime_error("out of luck"); }
};

void failing_op(const json& given) {
  const tensor x = tensor::of({1.0f}).requires_grad(true);
  group ab([&](const distag::worker& worker) {
    worker.register_function("run", [&](const tensor& each) {
      return distag::apply_custom(given["op"].get<std::string>(), broken(), each);
    });
  });
  const distag::context context(ab[0]);
  const tensor loss = context.call<tensor>("b", "run", {x}).sum();
  fails(given, [&] { context.backward(loss); });
}

struct counter {
  static inline std::atomic<int> freed{0};
  int number = 0;
  ~counter() { ++freed; }
};

void objects(const json& given) {
  counter::freed = 0;
  {
    group ab([](const distag::worker& worker) {
      worker.register_function("make", [] { return std::make_unique<counter>(); });
      worker.register_function("count", [](counter& used) { return ++used.number; });
      worker.register_function("other", [](layer&) {});
    });
    const distag::rref made = ab[0].remote("b", "make");
    for (int i = 0; i < given["calls"].get<int>(); ++i) {
      same(ab[0].call<int>("b", "count", {made}), given["answers"][static_cast<std::size_t>(i)].get<int>());
    }
    fails<distag::usage_error>(json{{"status", 10}}, [&] { ab[0].call("b", "other", {made}); });
    same(counter::freed.load(), 0);
  }
  same(counter::freed.load(), given["freed"].get<int>());
}

}  // namespace

std::vector<test_case> worker_cases() {
  return {{"workers: two in one process call each other", call_each_other},
          {"workers: an async call", async_call},
          {"workers: a value that stays is made and fetched", stays},
          {"workers: a nested call back to the caller", nested},
          {"workers: 100 calls at once from 8 threads or tasks", at_once},
          {"workers: a function that raises", raises},
          {"workers: status 1042 is kept with its rank", own_status},
          {"workers: an unknown function", unknown},
          {"workers: a deadline", deadline},
          {"workers: a cancellation reaches the callee", cancellation},
          {"workers: a deferred reply from another thread", deferred},
          {"workers: a second worker of another job", another_job},
          {"values: every kind there and back", every_kind},
          {"values: 16 deep travels, 17 deep is refused", depth},
          {"values: 2^53 + 1 keeps its value", big_integer},
          {"values: not a number stays one", not_a_number},
          {"values: a text with NUL is refused", nul},
          {"values: 1 MiB of bytes", many_bytes},
          {"values: an error names the path", path},
          {"backward: through two workers", two_workers},
          {"backward: through A, B and A again", there_and_back},
          {"backward: gradients are read on both sides", both_sides},
          {"backward: a failure in a remote custom op names it", failing_op},
          {"objects: behind a reference, used by a function, freed once", objects}};
}
