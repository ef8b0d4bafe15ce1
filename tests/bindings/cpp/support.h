// The parts that the cases share: their table, groups of workers in this process, and comparisons.
#pragma once

#include <distag.hpp>

#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>

using json = nlohmann::json;
using namespace std::chrono_literals;

struct test_case {
  const char* name;
  std::function<void(const json&)> run;
};
std::vector<test_case> local_cases();
std::vector<test_case> worker_cases();
std::vector<test_case> life_cases();

inline std::string repository;         // its folder
inline std::string program;            // this one, to be run again
int leave_with_calls_open(int calls);  // what it does then

inline void check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}
template <class A, class B>
void same(const A& found, const B& expected, const char* what = "other than expected") {
  if (found == expected) return;
  std::ostringstream text;
  text << what;
  if constexpr (std::is_arithmetic_v<A> && std::is_arithmetic_v<B>) text << ": " << found << ", not " << expected;
  throw std::runtime_error(text.str());
}

// Asserts that numbers are equal within a tolerance.
template <class T>
void near(const T* found, std::size_t count, const std::vector<double>& expected, double absolute = 0,
          double relative = 0) {
  same(count, expected.size(), "count");
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(static_cast<double>(found[i]) - expected[i]);
    check(difference <= std::max(absolute, relative * std::abs(expected[i])),
          std::to_string(found[i]) + " is not " + std::to_string(expected[i]));
  }
}
inline void near(double found, double expected, double absolute = 0) { near(&found, 1, {expected}, absolute); }

// The numbers of nested lists.
inline std::vector<double> flat(const json& given) {
  if (!given.is_array()) return {given.is_boolean() ? (given.get<bool>() ? 1.0 : 0.0) : given.get<double>()};
  std::vector<double> all;
  for (const json& each : given) {
    const auto part = flat(each);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}
inline std::vector<double> numbers(const distag::tensor& x) {
  return x.cast(distag::dtype::float64).to_vector<double>();
}
inline void near(const distag::tensor& found, const json& expected, double absolute = 0, double relative = 0) {
  const auto seen = numbers(found);
  near(seen.data(), seen.size(), flat(expected), absolute, relative);
}

inline distag::dtype dtype_named(const std::string& name) {
  return name == "float64"   ? distag::dtype::float64
         : name == "float32" ? distag::dtype::float32
         : name == "int64"   ? distag::dtype::int64
                             : distag::dtype::bool_;
}
// A tensor of nested lists, or of {"dtype", "shape", "data"}.
inline distag::tensor tensor_of(const json& given, distag::dtype type = distag::dtype::float32) {
  if (given.is_null()) return {};
  if (given.is_object()) {
    const auto shape = given["shape"].get<std::vector<std::int64_t>>();
    return distag::tensor::of(flat(given["data"]), shape).cast(dtype_named(given["dtype"]));
  }
  std::vector<std::int64_t> shape;
  for (const json* level = &given; level->is_array(); level = &level->at(0)) {
    shape.push_back(static_cast<std::int64_t>(level->size()));
    if (level->empty()) break;
  }
  return distag::tensor::of(flat(given), shape).cast(type);
}

// Asserts that the block fails as the case says.
template <class Error = distag::error, class Block>
void fails(const json& given, Block block) {
  try {
    block();
  } catch (const Error& failure) {
    same(static_cast<int>(failure.code()), given["status"].template get<int>(), "code");
    for (const json& part : given.value("message_has", json::array())) {
      check(std::string(failure.what()).find(part.template get<std::string>()) != std::string::npos, failure.what());
    }
    if (given.contains("origin_rank")) same(failure.origin_rank(), given["origin_rank"].template get<int>(), "rank");
    if (given.contains("may_have_run")) {
      same(failure.may_have_run(), given["may_have_run"].template get<bool>(), "may_have_run");
    }
    return;
  }
  throw std::runtime_error("nothing failed");
}

// Workers of one group in this process, started, and shut down side by side.
class group {
 public:
  using setup = std::function<void(const distag::worker&)>;
  explicit group(const setup& offer = {}, const std::vector<std::string>& names = {"a", "b"}) {
    static std::atomic<int> jobs{0};
    const std::string job = "job" + std::to_string(jobs++);
    std::vector<distag::future<void>> starts;
    for (std::size_t rank = 0; rank < names.size(); ++rank) {
      distag::worker_options options;
      options.name = names[rank];
      options.rank = static_cast<int>(rank);
      options.world_size = static_cast<int>(names.size());
      options.rendezvous = "inproc://" + job;
      options.job = job;
      workers_.emplace_back(options);
      if (offer) offer(workers_.back());
      starts.push_back(workers_.back().start_async(120s));
    }
    distag::wait_all(starts);
  }
  ~group() {
    std::vector<distag::future<distag::value>> ends;
    distag::status err;
    for (const distag::worker& each : workers_) {
      if (each) ends.push_back(each.shutdown_async(120s, err));
    }
    distag::wait_all(ends, err);
    if (err) std::fprintf(stderr, "shutdown: %s\n", err.message());
  }
  distag::worker& operator[](std::size_t rank) { return workers_[rank]; }

 private:
  std::vector<distag::worker> workers_;
};

inline json read_json(const std::string& path) {
  std::ifstream file(repository + "/" + path);
  check(file.good(), path);
  if (file.peek() == '[' || path.substr(path.size() - 5) == ".json") return json::parse(file);
  json lines = json::array();
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}
