// Rows of collectives among 2 and 4 members.
#include <string>

#include "bench/harness.h"

namespace bench {

namespace {

struct Collective {
  const char* name;
  uint32_t kind;
  int32_t members;
  int64_t count;  // float32 of the result
  int runs;
};

constexpr Collective kCollectives[] = {
    {"all_reduce_4B_2", DISTAG_ALL_REDUCE, 2, 1, 1000},
    {"all_reduce_4B_4", DISTAG_ALL_REDUCE, 4, 1, 500},
    {"all_reduce_64KB_2", DISTAG_ALL_REDUCE, 2, 1 << 14, 500},
    {"all_reduce_64KB_4", DISTAG_ALL_REDUCE, 4, 1 << 14, 300},
    {"all_reduce_1MB_2", DISTAG_ALL_REDUCE, 2, 1 << 18, 100},
    {"all_reduce_1MB_4", DISTAG_ALL_REDUCE, 4, 1 << 18, 100},
    {"all_reduce_25MB_2", DISTAG_ALL_REDUCE, 2, 25 << 18, 20},
    {"all_reduce_25MB_4", DISTAG_ALL_REDUCE, 4, 25 << 18, 10},
    {"all_reduce_64MB_2", DISTAG_ALL_REDUCE, 2, 64 << 18, 10},
    {"all_reduce_64MB_4", DISTAG_ALL_REDUCE, 4, 64 << 18, 6},
    {"all_gather_64MB_2", DISTAG_ALL_GATHER, 2, 64 << 18, 10},
    {"all_gather_64MB_4", DISTAG_ALL_GATHER, 4, 64 << 18, 6},
};

void run_row(distag_mesh* mesh, bool reports, const Collective& row) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_tensor* x = nullptr;
  const int64_t count = row.kind == DISTAG_ALL_GATHER ? row.count / row.members : row.count;
  distag_rand(7, DISTAG_FLOAT32, &count, 1, &x, &error);
  const auto call = [&] {
    distag_tensor* y = nullptr;
    distag_collective(mesh, row.kind, nullptr, x, nullptr, &y, &error);
    distag_tensor_release(y);
    check(error, row.name);
  };
  const std::vector<double> samples = timed(call, row.runs, 5);
  if (reports) report(row.name, samples, row.count <= 1 << 14 ? "us" : "ms");
  distag_tensor_release(x);
}

}  // namespace

std::vector<MeshRow> collective_rows() {
  std::vector<MeshRow> rows;
  for (const Collective& row : kCollectives) {
    rows.push_back(
        {row.name, row.members, [&row](const Member& member) { run_row(member.mesh, member.reports, row); }});
  }
  return rows;
}

}  // namespace bench
