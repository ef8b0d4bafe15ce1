#pragma once

// Benchmarks of libdistag through its C API, in rows that carry the names of the peer's. A row is a function that calls
// report() once; all rows are listed in main.cpp.
#include <distag.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace bench {

// Seconds that each of `count` runs took, after `warm` that are not counted.
std::vector<double> timed(const std::function<void()>& run, int count, int warm);

// Prints median and p99 of samples in seconds, scaled to `unit`: "us", "ms".
void report(const std::string& name, std::vector<double> samples, const std::string& unit);
void report_value(const std::string& name, double value, const std::string& unit);
double median(std::vector<double> samples);
// Two sides that were run in turn: reports the median of their ratios, and the medians of both, in `unit`.
void report_ratio(const std::string& name, const std::vector<double>& ours, const std::vector<double>& theirs,
                  const std::string& unit);

// All threads of this process may go to sleep meanwhile.
void rest(std::chrono::nanoseconds time);

// Ends the program with the message when an error holds a failure.
void check(const distag_error& error, const char* what);

struct Row {
  const char* name;
  void (*run)();
};

// Addresses at which workers listen: private ones, or tcp addresses of this machine without and with CURVE.
enum class Way { kPrivate, kTcp, kCurve };
struct Sockets {
  std::string bind;       // empty: private addresses
  std::string group_key;  // empty: none
};

// For kCurve with a key that nothing but this group has.
Sockets make_sockets(Way way);
distag_worker* make_worker(const char* rendezvous, int32_t rank, int32_t size, const Sockets& sockets);

// Rows on one thread; rows that call another process, run in a pair of workers, and those of them that train; rows that
// name what to compare with.
std::vector<Row> local_rows();
std::vector<Row> model_rows();
std::vector<Row> planning_rows();
std::vector<Row> search_rows();
std::vector<Row> pair_rows();
std::vector<Row> tcp_rows();    // of a pair that listens at tcp addresses
std::vector<Row> curve_rows();  // and with CURVE
std::vector<Row> training_rows();
std::vector<Row> reference_rows();

// Runs the wanted pair rows: starts the other worker as a process of this program and meets it. `serve` is that
// process's side.
void run_pair(const std::vector<Row>& rows, const char* program, Way way);
distag_worker* pair_worker();  // of the caller, while run_pair runs
void register_training(distag_worker* worker);
int serve(const char* rendezvous, const Sockets& sockets);

// Rows of a mesh over worker processes: all members run them, one reports.
struct Member {
  distag_worker* worker;
  distag_mesh* mesh;
  bool reports;
  double start_seconds;  // until all had met, from the begin of the first process
};
struct MeshRow {
  std::string name;
  int32_t members;
  std::function<void(const Member& member)> run;
  Way way = Way::kPrivate;
};
std::vector<MeshRow> collective_rows();
std::vector<MeshRow> sharded_rows();
std::vector<MeshRow> planned_rows();
std::vector<MeshRow> feeding_rows();
std::vector<MeshRow> store_rows();
std::vector<MeshRow> large_group_rows();

// None wanted: all. `run_member` is the side of a process that it starts.
void run_groups(const std::vector<std::string>& wanted);
int run_member(int count, char** words);

// Each op alone: words are the file of cases, and --check or the names of cases.
int run_ops(int count, char** words);

}  // namespace bench
