#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/executor.h"
#include "base/loop.h"
#include "spmd/batch.h"
#include "spmd/batch_queue.h"
#include "spmd/part_scatter.h"
#include "spmd/program.h"

namespace distag::spmd {

// Makes batches: code of the host, which may be called from several threads at once.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Null: the data has ended. `rows`: with ROWS the rows that are wanted, else nullptr. Throws to fail the loader.
  virtual Value make(uint64_t number, const std::vector<int64_t>* rows) = 0;
};

struct LoaderInfo {
  uint32_t ready = 0;
  uint64_t next = 0;
  int64_t count = -1;
  uint64_t dropped = 0;
  Nanos waited = 0;
  Nanos in_source = 0;
};

// Batches of a mesh, made ahead of its program. The source runs on the executor of host code. On a line of the loader's
// own, members announce each batch that they have made, in order: its entries, or the reason why it has none. Once
// all have announced it, the batch is ready. `progress_` is on the loop; public methods may be called on any thread.
// Tasks that a loader posts share it.
class Loader : public std::enable_shared_from_this<Loader> {
 public:
  struct Environment {
    Executor& functions;
    size_t most_sources = 1;  // sources that may run at once
  };

  // A call of the line. Throws INVALID_ARGUMENT, the same on all members, or the error of the mesh. The loader lives at
  // least until close(), and the source as long as calls of it run or follow.
  static std::shared_ptr<Loader> create(const Line& line, const Environment& environment,
                                        const LoaderSettings& settings, const Value& state,
                                        std::unique_ptr<BatchSource> source);
  Loader(const Line& line, const Environment& environment, const LoaderSettings& settings, uint64_t first,
         uint64_t call, std::unique_ptr<BatchSource> source);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // A value, or null at the end. Fails with DEADLINE, naming the late members; no batch is lost.
  std::shared_ptr<Future<Value>> next(Nanos timeout);
  Value save() const { return settings_.state(queue_.next()); }
  LoaderInfo info() const;
  // The host has released the loader: no further source begins, and the other members are told.
  void close() noexcept;

 private:
  struct Making;
  struct Waiting;
  // A batch that all members have made, on its way to the queue.
  struct Arriving {
    Agreement agreed;
    Tensors parts;
    Tensors given;       // at position 0 with ROOT: the parts of all members, yet to be sent
    size_t missing = 0;  // parts that have yet to come

    void check(const Loader& loader) const;
  };

  Mesh& mesh() const { return line_.program->mesh(); }
  template <typename Step>
  void attempt(Step step);
  void post_advance();
  void begin();
  void advance();
  void start_sources();
  void start_source(uint64_t number);
  void on_made(Making& making);
  void tell_made();
  void tell(uint64_t number, MadeBatch made);
  void on_told(uint64_t number, const Tensor& words);
  void agree(uint64_t number, const Tensor& words);
  void scatter(uint64_t number);
  void scatter_more();
  void begin_part(uint64_t number, size_t entry);
  void give_rest();
  void on_part(uint64_t number, size_t entry, const Tensor& part);
  void deliver();
  Value assemble(uint64_t number, Arriving& arriving);
  void end();
  void stop_making();
  void on_line_ended(const Error& error);
  void on_closed();
  void close_lines();
  MeshWaiting::Missing awaited() const;

  struct Counts {
    std::atomic<uint64_t> dropped{0};
    std::atomic<Nanos> in_source{0};
    std::atomic<int64_t> batches{-1};
    std::atomic<bool> is_closed{false};
    std::atomic<bool> is_advance_posted{false};
  };
  // The state of the batches so far; on the loop.
  struct Progress {
    uint64_t to_start = 0;
    uint64_t to_tell = 0;
    uint64_t to_agree = 0;
    uint64_t to_deliver = 0;
    size_t open = 0;                        // words under way
    std::map<uint64_t, Nanos> running;      // sources, and when each began
    std::map<uint64_t, MadeBatch> made;     // not announced yet
    std::map<uint64_t, Tensors> parts;      // of batches that were announced
    std::map<uint64_t, Tensor> words;       // words that arrived out of order
    std::map<uint64_t, Arriving> arriving;  // batches that all members have announced
    bool has_stopped = false;               // no further source begins
    bool has_told_last = false;
    std::optional<uint64_t> last;  // the number of the first batch that does not come
    std::optional<Error> failure;  // the reason, unless the data has ended
    bool is_over = false;          // the line is closed
  };

  const Line line_;
  const Environment environment_;
  const LoaderSettings settings_;
  const std::string name_;  // of the loader's own line; a second line carries parts
  const BatchRows rows_;
  const BatchRules rules_;
  BatchQueue queue_;
  Counts counts_;
  Progress progress_;                    // on the loop
  std::shared_ptr<BatchSource> source_;  // likewise
  Mesh::LineEnd line_end_;               // likewise
  PartScatter scatter_;                  // likewise
  TaskPlace advance_;
  TaskPlace close_;
};

}  // namespace distag::spmd
