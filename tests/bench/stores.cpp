// Rows of checkpoints of 256 MB among 2 members: saves and loads beside `dd` of the same bytes, a save beside steps,
// and the memory of a load. Files are in /dev/shm, where a sync has nothing to do, apart from those of the save beside
// steps, which are on the disk of /tmp.
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "bench/mlp.h"

extern char** environ;

namespace bench {

namespace {

constexpr int64_t kTensors = 16;
constexpr int64_t kTensorRows = 4096;
constexpr int64_t kTensorColumns = 1024;  // 16 MiB each
constexpr double kPartBytes = kTensors * kTensorRows * kTensorColumns * 4 / 2;

// All members come, and each gets the text of the one at position 0.
std::string text_of_first(const Member& member, const std::string& text) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_value* own = nullptr;
  distag_value* all = nullptr;
  const char* first = nullptr;
  distag_value_create_text(text.c_str(), &own, &error);
  distag_worker_all_gather(member.worker, own, nullptr, 0, 60 * DISTAG_SECOND, &all, &error);
  distag_value_get_text(distag_value_get_item(all, 0), &first, &error);
  check(error, "text_of_first");
  const std::string result = first;
  distag_value_release(all);
  distag_value_release(own);
  return result;
}

// A folder that all members see, until all have left it.
class SharedFolder {
 public:
  SharedFolder(const Member& member, const std::string& parent) : member_(member) {
    std::string made = parent + "/distag-bench-XXXXXX";
    if (member.reports && mkdtemp(made.data()) == nullptr) {
      std::perror(made.c_str());
      std::exit(1);
    }
    path_ = text_of_first(member, made);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  ~SharedFolder() {
    text_of_first(member_, "");
    std::error_code ignored;
    if (member_.reports) std::filesystem::remove_all(path_, ignored);
  }

  std::string checkpoint() const { return path_ + "/checkpoint"; }
  std::string own_file() const { return path_ + "/part" + std::to_string(distag_worker_get_rank(member_.worker)); }

 private:
  const Member& member_;
  std::string path_;
};

distag_tensor* make_part(distag_mesh* mesh, const char* spec, uint64_t seed) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  options.init = DISTAG_INIT_RAND;
  options.seed = seed;
  const int64_t shape[] = {kTensorRows, kTensorColumns};
  distag_tensor* made = nullptr;
  distag_tensor_create_deferred(DISTAG_FLOAT32, shape, 2, &options, &made, &error);
  distag_tensor_mark_sharding(made, mesh, spec, -1, &error);
  check(error, "a part");
  return made;
}

// 16 tensors of 16 MiB of which each member has one half, and others beside them, as a map.
class State {
 public:
  explicit State(distag_mesh* mesh, const std::vector<distag_tensor*>& others = {}) {
    for (int64_t i = 0; i < kTensors; ++i) {
      own_.push_back(make_part(mesh, "('axis0', None)", static_cast<uint64_t>(i)));
    }
    std::vector<distag_tensor*> all = own_;
    all.insert(all.end(), others.begin(), others.end());
    std::vector<std::string> names;
    for (size_t i = 0; i < all.size(); ++i) names.push_back("t" + std::to_string(i));
    std::vector<const char*> keys;
    std::vector<distag_value*> values;
    for (size_t i = 0; i < all.size(); ++i) {
      keys.push_back(names[i].c_str());
      values.push_back(distag_tensor_as_value(all[i]));
    }
    distag_error error = DISTAG_ERROR_INIT;
    distag_value_create_map(keys.data(), values.data(), keys.size(), &map_, &error);
    check(error, "a state");
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    distag_value_release(map_);
    for (distag_tensor* tensor : own_) distag_tensor_release(tensor);
  }

  distag_value* map() const { return map_; }

 private:
  std::vector<distag_tensor*> own_;
  distag_value* map_ = nullptr;
};

void save(const Member& member, const SharedFolder& folder, const State& state) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_checkpoint_save(member.mesh, folder.checkpoint().c_str(), state.map(), 0, &error);
  check(error, "save");
}

void load(const Member& member, const SharedFolder& folder, distag_value* into, distag_value** out_value) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_checkpoint_load(member.mesh, folder.checkpoint().c_str(), into, 0, out_value, &error);
  check(error, "load");
}

void saving(const Member& member) {
  const SharedFolder folder(member, "/dev/shm");
  const State state(member.mesh);
  const std::vector<double> samples = timed([&] { save(member, folder, state); }, 9, 2);
  if (member.reports) report("save_256MB", samples, "ms");
}

void loading(const Member& member) {
  const SharedFolder folder(member, "/dev/shm");
  const State state(member.mesh);
  save(member, folder, state);
  const std::vector<double> samples = timed([&] { load(member, folder, state.map(), nullptr); }, 9, 2);
  if (member.reports) report("load_256MB", samples, "ms");
}

// Tensors come deferred from the load, and are marked then, which makes their parts.
distag_value* load_new(const Member& member, const SharedFolder& folder) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_value* all = nullptr;
  load(member, folder, nullptr, &all);
  for (size_t i = 0; i < distag_value_get_count(all); ++i) {
    distag_tensor* tensor = nullptr;
    distag_value_get_tensor(distag_value_get_item(all, i), &tensor, &error);
    distag_tensor_mark_sharding(tensor, member.mesh, "('axis0', None)", -1, &error);
  }
  check(error, "a load of new tensors");
  return all;
}

void loading_new(const Member& member) {
  const SharedFolder folder(member, "/dev/shm");
  save(member, folder, State(member.mesh));
  const std::vector<double> samples = timed([&] { distag_value_release(load_new(member, folder)); }, 9, 2);
  if (member.reports) report("load_new_256MB", samples, "ms");
}

// ---- the same bytes by dd: each member those of its part, all at the same time ----

void run_dd(std::vector<std::string> words) {
  words.insert(words.begin(), "dd");
  words.insert(words.end(), {"bs=4M", "status=none"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  int status = 1;
  if (posix_spawnp(&child, "dd", nullptr, nullptr, arguments.data(), environ) != 0 ||
      waitpid(child, &status, 0) != child || status != 0) {
    std::fprintf(stderr, "dd failed\n");
    std::exit(1);
  }
}

// From /dev/zero, so that it does nothing but write; over what it wrote before.
void write_by_dd(const SharedFolder& folder) {
  constexpr int64_t kPieces = static_cast<int64_t>(kPartBytes) >> 22;
  run_dd({"if=/dev/zero", "of=" + folder.own_file(), "count=" + std::to_string(kPieces)});
}

void read_by_dd(const SharedFolder& folder) { run_dd({"if=" + folder.own_file(), "of=/dev/null"}); }

void dd(const Member& member, const char* name, void (*copy)(const SharedFolder& folder)) {
  const SharedFolder folder(member, "/dev/shm");
  write_by_dd(folder);
  const auto all = [&] {
    text_of_first(member, "");
    copy(folder);
    text_of_first(member, "");
  };
  const std::vector<double> samples = timed(all, 9, 2);
  if (member.reports) report(name, samples, "ms");
}

// ---- beside a program ----

class AsyncSave {
 public:
  AsyncSave(const Member& member, const SharedFolder& folder, const State& state) {
    const auto call = [&] {
      distag_checkpoint_save_async(member.mesh, folder.checkpoint().c_str(), state.map(), 0, &future_, &error_);
    };
    seconds_ = timed(call, 1, 0)[0];
    check(error_, "save_async");
  }
  AsyncSave(const AsyncSave&) = delete;
  AsyncSave& operator=(const AsyncSave&) = delete;
  ~AsyncSave() {
    distag_future_wait(future_, DISTAG_FOREVER, &error_);
    check(error_, "the end of save_async");
    distag_future_release(future_);
  }

  double seconds() const { return seconds_; }  // of the call
  bool is_under_way() const { return distag_future_poll(future_) == 0; }

 private:
  distag_error error_ = DISTAG_ERROR_INIT;
  distag_future* future_ = nullptr;
  double seconds_ = 0;
};

void calling_save_async(const Member& member) {
  const SharedFolder folder(member, "/dev/shm");
  const State state(member.mesh);
  std::vector<double> samples;
  for (int i = 0; i < 11; ++i) samples.push_back(AsyncSave(member, folder, state).seconds());
  samples.erase(samples.begin());
  if (member.reports) report("save_async_call", samples, "ms");
}

// Steps of data_parallel_step while its parameters and 256 MB beside them are saved, from the call to the end on the
// disk, over some alone.
void stepping_beside_save(const Member& member) {
  const SharedFolder folder(member, "/tmp");
  Mlp model(member.worker, member.mesh, "(None, None)", "(None,)");
  const State state(member.mesh, model.parameters());
  std::vector<double> ours, theirs;
  const auto seconds_of_steps = [&](int count) { return timed([&] { model.train(); }, count, 0); };
  const auto mean = [](const std::vector<double>& seconds) {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  };
  seconds_of_steps(5);
  for (int round = 0; round < 3; ++round) {
    std::vector<double> beside;
    {
      const AsyncSave saved(member, folder, state);
      do {  // as many steps on all members
        for (const double taken : seconds_of_steps(4)) beside.push_back(taken);
      } while (text_of_first(member, saved.is_under_way() ? "on" : "") == "on");
    }
    ours.push_back(mean(beside));
    theirs.push_back(mean(seconds_of_steps(static_cast<int>(std::min<size_t>(beside.size(), 40)))));
  }
  if (member.reports) report_ratio("save_async_step", ours, theirs, "ms");
}

// ---- memory ----

// In bytes, of a line of /proc/self/status.
double memory_of_process(const char* key) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  double kib = 0;
  char line[256];
  const std::string form = std::string(key) + ": %lf kB";
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, form.c_str(), &kib) == 1) break;
  }
  if (file != nullptr) std::fclose(file);
  return kib * 1024;
}

// By how many bytes the process has at most more while `run` runs than before it.
double peak_of(const std::function<void()>& run) {
  rest(std::chrono::seconds(3));  // until memory that is kept for the next tensors has gone back
  std::FILE* file = std::fopen("/proc/self/clear_refs", "w");
  const bool is_reset = file != nullptr && std::fputs("5", file) >= 0;
  if (file == nullptr || std::fclose(file) != 0 || !is_reset) {
    std::perror("/proc/self/clear_refs");
    std::exit(1);
  }
  const double before = memory_of_process("VmRSS");
  run();
  return memory_of_process("VmHWM") - before;
}

// The memory beside the parts that the marking makes.
void memory_of_load(const Member& member) {
  const SharedFolder folder(member, "/dev/shm");
  save(member, folder, State(member.mesh));
  distag_value* all = nullptr;
  const double peak = peak_of([&] { all = load_new(member, folder); });
  if (member.reports) report_value("load_memory", (peak - kPartBytes) / (1 << 20), "MiB");
  distag_value_release(all);
}

// Into tensors that are there, beside them.
void memory_of_load_into(const Member& member) {
  const SharedFolder folder(member, "/dev/shm");
  const State state(member.mesh);
  save(member, folder, state);
  const double peak = peak_of([&] { load(member, folder, state.map(), nullptr); });
  if (member.reports) report_value("load_into_memory", peak / (1 << 20), "MiB");
}

}  // namespace

std::vector<MeshRow> store_rows() {
  return {{"save_256MB", 2, saving},
          {"dd_write_256MB", 2, [](const Member& member) { dd(member, "dd_write_256MB", write_by_dd); }},
          {"load_256MB", 2, loading},
          {"load_new_256MB", 2, loading_new},
          {"dd_read_256MB", 2, [](const Member& member) { dd(member, "dd_read_256MB", read_by_dd); }},
          {"save_async_call", 2, calling_save_async},
          {"save_async_step", 2, stepping_beside_save},
          {"load_memory", 2, memory_of_load},
          {"load_into_memory", 2, memory_of_load_into}};
}

}  // namespace bench
