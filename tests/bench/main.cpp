// distag_bench [ROW ...] [--json]: the rows of local work, of a pair of worker processes, of meshes, and what they
// compare with.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "bench/harness.h"

namespace bench {

namespace {
bool as_json = false;
}

std::vector<double> timed(const std::function<void()>& run, int count, int warm) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < warm; ++i) run();
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return seconds;
}

void rest(std::chrono::nanoseconds time) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock(mutex);
  never.wait_for(lock, time, [] { return false; });
}

void report_value(const std::string& name, double value, const std::string& unit) {
  const char* form = as_json ? "{\"name\": \"%s\", \"p50\": %.4f, \"unit\": \"%s\"}\n" : "%-28s %14.3f  %s\n";
  std::printf(form, name.c_str(), value, unit.c_str());
  std::fflush(stdout);
}

void report(const std::string& name, std::vector<double> samples, const std::string& unit) {
  const double scale = unit == "us" ? 1e6 : 1e3;
  std::sort(samples.begin(), samples.end());
  const double p50 = samples[samples.size() / 2] * scale;
  const double p99 = samples[std::min(samples.size() - 1, samples.size() * 99 / 100)] * scale;
  const char* form = as_json ? "{\"name\": \"%s\", \"p50\": %.4f, \"p99\": %.4f, \"unit\": \"%s\"}\n"
                             : "%-28s p50 %10.2f  p99 %10.2f  %s\n";
  std::printf(form, name.c_str(), p50, p99, unit.c_str());
  std::fflush(stdout);
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

void report_ratio(const std::string& name, const std::vector<double>& ours, const std::vector<double>& theirs,
                  const std::string& unit) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / theirs[i]);
  const double scale = unit == "us" ? 1e6 : 1e3;
  const char* form =
      as_json ? "{\"name\": \"%s\", \"p50\": %.4f, \"unit\": \"x\", \"sides\": [%.4f, %.4f], \"of\": \"%s\"}\n"
              : "%-28s %14.3f  x    %10.2f / %10.2f  %s\n";
  std::printf(form, name.c_str(), median(ratios), median(ours) * scale, median(theirs) * scale, unit.c_str());
  std::fflush(stdout);
}

void check(const distag_error& error, const char* what) {
  if (error.code == DISTAG_OK) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, distag_status_get_name(error.code), error.message);
  std::exit(1);
}

}  // namespace bench

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--serve") == 0) return bench::serve(argv[2], {argv[3], argv[4]});
  if (argc > 6 && std::strcmp(argv[1], "--member") == 0) return bench::run_member(argc - 2, argv + 2);
  if (argc > 2 && std::strcmp(argv[1], "--ops") == 0) return bench::run_ops(argc - 2, argv + 2);
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      bench::as_json = true;
    } else {
      wanted.emplace_back(argv[i]);
    }
  }
  const auto choose = [&wanted](const std::vector<bench::Row>& rows) {
    std::vector<bench::Row> chosen;
    for (const bench::Row& row : rows) {
      if (wanted.empty() || std::find(wanted.begin(), wanted.end(), row.name) != wanted.end()) chosen.push_back(row);
    }
    return chosen;
  };
  for (const bench::Row& row : choose(bench::reference_rows())) row.run();
  for (const bench::Row& row : choose(bench::local_rows())) row.run();
  for (const bench::Row& row : choose(bench::model_rows())) row.run();
  for (const bench::Row& row : choose(bench::planning_rows())) row.run();
  for (const bench::Row& row : choose(bench::search_rows())) row.run();
  std::vector<bench::Row> pair = choose(bench::pair_rows());
  const std::vector<bench::Row> training = choose(bench::training_rows());
  pair.insert(pair.end(), training.begin(), training.end());
  if (!pair.empty()) bench::run_pair(pair, argv[0], bench::Way::kPrivate);
  const std::vector<bench::Row> tcp = choose(bench::tcp_rows());
  if (!tcp.empty()) bench::run_pair(tcp, argv[0], bench::Way::kTcp);
  const std::vector<bench::Row> curve = choose(bench::curve_rows());
  if (!curve.empty()) bench::run_pair(curve, argv[0], bench::Way::kCurve);
  bench::run_groups(wanted);
  return 0;
}
