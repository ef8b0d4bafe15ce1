// Rows of loaders among 2 members: steps beside one that keeps ahead, steps that wait for a slow source, and batches of
// a mapped file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "bench/mlp.h"

namespace bench {

namespace {

constexpr int64_t kBatchRows = 256;

// Rows of float32 in a file that this process maps and nothing else sees.
class MappedFile {
 public:
  MappedFile(int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {
    std::FILE* file = std::tmpfile();
    std::vector<float> row(static_cast<size_t>(columns));
    bool is_written = file != nullptr;
    for (int64_t i = 0; is_written && i < rows; ++i) {
      for (size_t c = 0; c < row.size(); ++c) row[c] = static_cast<float>(i % 1000) / 1000;
      is_written = std::fwrite(row.data(), row_bytes(), 1, file) == 1;
    }
    if (is_written && std::fflush(file) == 0) data_ = mmap(nullptr, size(), PROT_READ, MAP_PRIVATE, fileno(file), 0);
    if (data_ == MAP_FAILED) {
      std::perror("a mapped file");
      std::exit(1);
    }
    std::fclose(file);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { munmap(data_, size()); }

  int64_t rows() const { return rows_; }

  // A tensor of some rows, from the column `begin` on.
  distag_tensor* gather(const int64_t* rows, size_t count, int64_t begin, int64_t columns, distag_error* error) const {
    const size_t bytes = static_cast<size_t>(columns) * sizeof(float);
    char* memory = static_cast<char*>(std::malloc(count * bytes));
    for (size_t i = 0; i < count; ++i) {
      const char* row = static_cast<const char*>(data_) + static_cast<size_t>(rows[i]) * row_bytes();
      std::memcpy(memory + i * bytes, row + static_cast<size_t>(begin) * sizeof(float), bytes);
    }
    const int64_t shape[] = {static_cast<int64_t>(count), columns};
    distag_tensor* made = nullptr;
    distag_tensor_create_borrowed(memory, count * bytes, DISTAG_FLOAT32, shape, nullptr, 2, memory, std::free, &made,
                                  error);
    return made;
  }

 private:
  size_t row_bytes() const { return static_cast<size_t>(columns_) * sizeof(float); }
  size_t size() const { return static_cast<size_t>(rows_) * row_bytes(); }

  const int64_t rows_;
  const int64_t columns_;
  void* data_ = MAP_FAILED;
};

// The tensor that a source reads, and how long it rests before each batch, as for a slow disk. Each loader has its own,
// as its source may still run when the loader is released.
struct Feed {
  std::shared_ptr<const MappedFile> file;
  std::chrono::milliseconds delay{0};
};

// Rows of two halves, "x" and "y".
distag_status give_pairs(void* user_data, uint64_t, const int64_t* rows, size_t count, distag_value** out_batch,
                         distag_error* error) {
  const Feed& feed = *static_cast<const Feed*>(user_data);
  if (feed.delay.count() > 0) rest(feed.delay);
  distag_tensor* halves[] = {feed.file->gather(rows, count, 0, 512, error),
                             feed.file->gather(rows, count, 512, 512, error)};
  distag_value* values[] = {distag_tensor_as_value(halves[0]), distag_tensor_as_value(halves[1])};
  const char* const names[] = {"x", "y"};
  const distag_status status = distag_value_create_map(names, values, 2, out_batch, error);
  for (distag_tensor* half : halves) distag_tensor_release(half);
  return status;
}

distag_status give_rows(void* user_data, uint64_t, const int64_t* rows, size_t count, distag_value** out_batch,
                        distag_error* error) {
  *out_batch = distag_tensor_as_value(static_cast<const Feed*>(user_data)->file->gather(rows, count, 0, 256, error));
  return error->code;
}

distag_loader* make_loader(const Member& member, distag_batch_source source, const Feed& feed) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
  options.mode = DISTAG_BATCH_ROWS;
  options.row_count = feed.file->rows();
  options.batch_rows = kBatchRows;
  options.epochs = DISTAG_FOREVER;
  options.shuffle = 1;
  options.seed = 7;
  distag_loader* made = nullptr;
  distag_loader_create(
      member.mesh, source, new Feed(feed), [](void* own) { delete static_cast<Feed*>(own); }, &options, &made, &error);
  check(error, "a loader");
  return made;
}

distag_value* next_of(distag_loader* loader) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_value* batch = nullptr;
  distag_loader_next(loader, 60 * DISTAG_SECOND, &batch, &error);
  check(error, "the next batch");
  return batch;
}

void train_next(Mlp& model, distag_loader* loader) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_tensor* halves[2] = {};
  distag_value* batch = next_of(loader);
  distag_value_get_tensor(distag_value_get_entry(batch, "x"), &halves[0], &error);
  distag_value_get_tensor(distag_value_get_entry(batch, "y"), &halves[1], &error);
  check(error, "a batch");
  model.train(halves[0], halves[1]);
  distag_value_release(batch);
}

// Steps of data_parallel_step on batches of a loader, over steps on one batch that is there: eight of the one, then
// eight of the other.
void loader_ahead(const Member& member) {
  constexpr int kSteps = 8;
  const Feed feed{std::make_shared<const MappedFile>(4096, 1024)};
  Mlp model(member.worker, member.mesh, "(None, None)", "(None,)");
  distag_loader* loader = make_loader(member, give_pairs, feed);
  std::vector<double> ours, theirs;
  const auto eight = [](const std::function<void()>& step) {
    return timed(
               [&] {
                 for (int i = 0; i < kSteps; ++i) step();
               },
               1, 0)[0] /
           kSteps;
  };
  for (int round = -1; round < 12; ++round) {
    const double with = eight([&] { train_next(model, loader); });
    const double without = eight([&] { model.train(); });
    if (round < 0) continue;
    ours.push_back(with);
    theirs.push_back(without);
  }
  if (member.reports) report_ratio("loader_ahead_step", ours, theirs, "ms");
  distag_loader_release(loader);
}

double seconds_of_source(Feed& feed, int calls) {
  std::vector<int64_t> rows(kBatchRows / 2);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i) * 31 % feed.file->rows();
  const auto call = [&] {
    distag_error error = DISTAG_ERROR_INIT;
    distag_value* batch = nullptr;
    give_pairs(&feed, 0, rows.data(), rows.size(), &batch, &error);
    check(error, "the source");
    distag_value_release(batch);
  };
  return timed(
             [&] {
               for (int i = 0; i < calls; ++i) call();
             },
             1, 0)[0] /
         calls;
}

// Steps whose source takes longer than they do, over the source alone.
void loader_waits(const Member& member) {
  constexpr int kSteps = 6;
  Feed feed{std::make_shared<const MappedFile>(4096, 1024), std::chrono::milliseconds(60)};
  Mlp model(member.worker, member.mesh, "(None, None)", "(None,)", 64);
  std::vector<double> ours, theirs;
  for (int round = 0; round < 5; ++round) {
    distag_loader* loader = make_loader(member, give_pairs, feed);
    for (int i = 0; i < 4; ++i) train_next(model, loader);  // those that were made ahead
    ours.push_back(timed(
                       [&] {
                         for (int i = 0; i < kSteps; ++i) train_next(model, loader);
                       },
                       1, 0)[0] /
                   kSteps);
    distag_loader_release(loader);
    theirs.push_back(seconds_of_source(feed, kSteps));
  }
  if (member.reports) report_ratio("loader_waits_step", ours, theirs, "ms");
}

// The time of a batch, of those of 65,536 shuffled rows of 256 numbers in a file: nothing is done with them.
void loader_of_file(const Member& member) {
  const Feed feed{std::make_shared<const MappedFile>(1 << 16, 256)};
  constexpr int64_t kBatches = (1 << 16) / kBatchRows;
  distag_loader* loader = make_loader(member, give_rows, feed);
  const auto epoch = [loader] {
    for (int64_t i = 0; i < kBatches; ++i) distag_value_release(next_of(loader));
  };
  std::vector<double> samples = timed(epoch, 15, 2);
  for (double& sample : samples) sample /= kBatches;
  if (member.reports) report("loader_of_mapped_file", samples, "us");
  distag_loader_release(loader);
}

}  // namespace

std::vector<MeshRow> feeding_rows() {
  return {{"loader_ahead_step", 2, loader_ahead},
          {"loader_waits_step", 2, loader_waits},
          {"loader_of_mapped_file", 2, loader_of_file}};
}

}  // namespace bench
