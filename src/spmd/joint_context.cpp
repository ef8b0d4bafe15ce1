#include "spmd/joint_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <set>

#include "autograd/autograd.h"
#include "base/clock.h"
#include "base/error.h"
#include "dautograd/context_handle.h"
#include "layout/spec_text.h"
#include "ops/op.h"
#include "spmd/entry_node.h"
#include "spmd/joint_pass.h"
#include "tensor/shape_only.h"

namespace distag::spmd {
namespace {

JointPass::CheckStop make_deadline_check(Nanos timeout) {
  if (timeout < 0) return nullptr;
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  return [deadline, timeout] {
    if (SteadyClock().now() < deadline) return;
    fail(Status::kDeadline, "backward: not done after {:.3f} s", static_cast<double>(timeout) / kSecond);
  };
}

Tensor filled_with_one(Dtype dtype, const Dims& shape) {
  Tensor ones = Tensor::empty(dtype, shape);
  ops::assign(ones, Tensor::scalar(dtype, 1));
  return ones;
}

struct Roots {
  std::vector<autograd::Edge> edges;
  Tensors seeds;
};

// The call of a pass as members compare it, with roots by their names. Wrong arguments are compared too.
struct PassCall {
  std::string text;
  Fingerprint fingerprint;

  PassCall(const Program& program, uint64_t context, const Tensors& roots, const BackwardOptions& options) {
    fingerprint.add("backward").add(context).add(options.retain_graph ? 1 : 0).add(roots.size());
    for (const Tensor& root : roots) {
      text += text.empty() ? "backward(" : ", ";
      const Sharding* sharding = Sharding::of(root);
      if (sharding == nullptr || &sharding->program() != &program) {
        text += root ? describe(root) + " that is not of this mesh" : "nothing";
        fingerprint.add(0);
        continue;
      }
      fingerprint.add(sharding->name().line).add(sharding->name().call).add(sharding->name().output);
      const bool is_leaf = !autograd::requires_grad(root) || !autograd::has_history(root);
      text += fmt::format("{} {}", print_spec(program.shape(), sharding->lying().spec), describe(root));
      if (!is_leaf) text += " of " + autograd::gradient_edge(root).node->name();
    }
    text += text.empty() ? "backward()" : ")";
  }
};

Tensor seed_of(const CallOnLine& call, const Tensor& root, const Tensor& given, size_t i) {
  const Sharding& sharding = *Sharding::of(root);
  const layout::MeshShape& mesh = sharding.program().shape();
  const layout::Spec spec = sharding.lying().spec.dual();
  if (!given) {
    if (root.count() != 1) {
      fail(Status::kInvalidArgument, "backward: root {} ({}) needs a seed, since it is not one element", i,
           describe(root));
    }
    const Dims shape = local_shape(mesh, spec, root.shape(), sharding.program().position());
    return make_sharded(call.line(), call.name_of(0), root.shape(), spec, filled_with_one(root.dtype(), shape));
  }
  const Sharding* seed = Sharding::of(given);
  const bool fits = seed != nullptr && &seed->program() == &sharding.program() && given.shape() == root.shape() &&
                    given.dtype() == root.dtype() && places_alike(mesh, seed->lying().spec, spec);
  if (!fits) {
    fail(Status::kInvalidArgument, "backward: the seed of root {} is {} {}, not {} {}", i, describe(given),
         seed == nullptr ? "and not sharded" : seed->describe(), describe(root), print_spec(mesh, spec));
  }
  return given.snapshot();
}

Roots check_roots(const CallOnLine& call, const Tensors& roots, const Tensors& seeds) {
  if (roots.empty()) fail(Status::kInvalidArgument, "backward: no roots");
  if (!seeds.empty() && seeds.size() != roots.size()) {
    fail(Status::kInvalidArgument, "backward: {} seeds for {} roots", seeds.size(), roots.size());
  }
  Roots result;
  for (size_t i = 0; i < roots.size(); ++i) {
    const Tensor& root = roots[i];
    check_not_shape_only(root);
    const Sharding* sharding = Sharding::of(root);
    if (sharding == nullptr || &sharding->program() != call.line().program.get()) {
      fail(Status::kInvalidArgument,
           "backward: root {} ({}) is not sharded over the mesh of this context: make it so (from_local)", i,
           describe(root));
    }
    if (!autograd::requires_grad(root) || !autograd::has_history(root)) {
      fail(Status::kInvalidArgument, "backward: root {} ({}) has no history: it is no result of an op that records", i,
           describe(root));
    }
    result.edges.push_back(autograd::gradient_edge(root));
    result.seeds.push_back(seed_of(call, root, seeds.empty() ? Tensor() : seeds[i], i));
  }
  return result;
}

// The longest prefix of at most `most` bytes that ends between UTF-8 characters.
std::string_view prefix_of(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most);
}

// The state of a member in a pass, as sent to all: its status (0: no failure), numbers, and the text of its failure
// with the rank where it arose.
class Word {
 public:
  static constexpr size_t kNumbers = 3;
  using Numbers = std::array<uint64_t, kNumbers>;

  static Tensor write(const std::optional<Error>& error, const Numbers& numbers) {
    Tensor row = Tensor::empty(Dtype::kInt64, {kItems});
    auto* items = row.mutable_data_as<int64_t>();
    std::fill_n(items, kItems, 0);
    for (size_t i = 0; i < kNumbers; ++i) items[kFirstNumber + i] = static_cast<int64_t>(numbers[i]);
    if (!error) return row;
    items[0] = static_cast<int64_t>(error->status());
    const std::string_view text = prefix_of(error->message(), kTextBytes);
    items[1] = static_cast<int64_t>(text.size());
    items[kRank] = error->origin_rank();
    std::memcpy(items + kText, text.data(), text.size());
    return row;
  }
  static uint64_t number_in(const Tensor& rows, int64_t position, size_t i) {
    return static_cast<uint64_t>(rows.data_as<int64_t>()[static_cast<size_t>(position * kItems) + kFirstNumber + i]);
  }
  static std::optional<Error> error_in(const Tensor& rows, int64_t position, int32_t rank) {
    const int64_t* items = rows.data_as<int64_t>() + position * kItems;
    if (items[0] == 0) return std::nullopt;
    const auto size = std::clamp<int64_t>(items[1], 0, kTextBytes);
    std::string text(reinterpret_cast<const char*>(items + kText), static_cast<size_t>(size));
    Error error(static_cast<Status>(items[0]), std::move(text));
    return error.set_origin_rank(items[kRank] < 0 ? rank : static_cast<int32_t>(items[kRank]));
  }

 private:
  static constexpr size_t kTextBytes = 1000;
  static constexpr size_t kRank = 2;
  static constexpr size_t kFirstNumber = 3;
  static constexpr size_t kText = kFirstNumber + kNumbers;
  static constexpr int64_t kItems = kText + kTextBytes / sizeof(int64_t);
};

// Gathers the words of all members. Throws the same error on each member if one has failed.
Tensor tell(CallOnLine& call, const std::optional<Error>& own, const Word::Numbers& numbers) {
  const layout::MeshShape& mesh = call.line().program->shape();
  const Tensor rows = call.gather_words(Word::write(own, numbers));
  for (int64_t position = 0; position < mesh.count(); ++position) {
    if (auto error = Word::error_in(rows, position, mesh.ranks()[static_cast<size_t>(position)])) throw *error;
  }
  return rows;
}

bool is_same(const Tensor& rows, size_t number) {
  for (int64_t position = 1; position < rows.shape()[0]; ++position) {
    if (Word::number_in(rows, position, number) != Word::number_in(rows, 0, number)) return false;
  }
  return true;
}

bool is_any(const Tensor& rows, size_t number) {
  for (int64_t position = 0; position < rows.shape()[0]; ++position) {
    if (Word::number_in(rows, position, number) != 0) return true;
  }
  return false;
}

// The call of a pass that goes through other workers too, as an entry. It gives the seeds of the roots.
class RootsNode final : public MeshEntry {
 public:
  RootsNode(const CallOnLine& call, std::vector<autograd::Edge> roots, Tensors seeds)
      : MeshEntry(call.line(), call.number(), std::move(roots), {Output{Dims(), layout::Spec(), false}}),
        seeds_(std::move(seeds)) {
    set_saved(std::make_shared<NothingSaved>());
  }
  std::string name() const override { return "backward"; }
  Tensors run(SavedData&, Tensors, CallOnLine&) override { return seeds_; }

 private:
  const Tensors seeds_;
};

class JointContext final : public ContextHandle {
 public:
  JointContext(Dautograd::JointPlace place, Line line, uint64_t number)
      : ContextHandle(std::move(place.shared), std::move(place.record), true),
        line_(std::move(line)),
        number_(number) {}

  void backward(const Tensors& roots, const BackwardOptions& options) override {
    CallOnLine call(line_, "backward");
    // A quarter longer than the pass: a slow pass ends by its own deadline, and a missing member is named.
    if (options.timeout > 0) call.set_timeout(in_time(options.timeout));
    try {
      run(call, roots, options);
    } catch (...) {
      const Error error = current_error();
      // OUT_OF_MEMORY on this member alone: an error that all members were sent has a rank.
      const bool is_of_this_member = error.status() == Status::kOutOfMemory && error.origin_rank() < 0;
      if (is_of_this_member || error.status() == Status::kDiverged) call.end_mesh(error);
      throw;
    }
  }

  std::shared_ptr<Future<Value>> backward_async(const Tensors&, const BackwardOptions&) override {
    fail(Status::kUnsupported, "backward_async: a joint context runs its passes on the thread that calls backward");
  }
  std::shared_ptr<const Gradients> gradients() override { return record().read_kept(lease()); }

 private:
  // Counts the pass in the record, like other passes.
  class Running {
   public:
    explicit Running(ContextRecord& record) : record_(record) { record_.begin_pass(); }
    ~Running() { record_.end_pass(); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    ContextRecord& record_;
  };

  void run(CallOnLine& call, const Tensors& roots, const BackwardOptions& options) {
    PassCall made(*line_.program, number_, roots, options);
    call.note(made.text, made.fingerprint.value());
    JointPass pass(call, make_deadline_check(options.timeout));
    Roots from;
    std::shared_ptr<RootsNode> entry;  // found by other members' passes as long as it is held
    std::optional<Error> failure;
    try {
      record().check();
      if (options.mode == BackwardMode::kFast) {
        fail(Status::kUnsupported, "backward: FAST does not take sharded tensors; use SMART");
      }
      if (options.create_graph) {
        fail(Status::kUnsupported,
             "backward: create_graph does not work in a joint context; use a context of one worker");
      }
      from = check_roots(call, roots, options.seeds);
      pass.walk(from.edges);
      entry = std::make_shared<RootsNode>(call, from.edges, from.seeds);
      line_.program->add_entry(entry->entry_name(), entry);
    } catch (...) {
      failure = current_error();
    }
    Tensor rows = tell(call, failure, numbers_of(pass));
    // An entry that only some members reached may lead the others to further entries.
    while (!is_any(rows, kReachesOthers) && !is_same(rows, kEntries)) {
      rows = reach_entries_of_all(call, pass, rows);
    }
    if (is_any(rows, kReachesOthers)) return run_with_others(call, entry, options);
    // Other members compare this with the calls that the steps make, at the latest with the last word.
    call.note(fmt::format("the {} steps of {}", pass.joint_steps(), made.text),
              made.fingerprint.add(pass.plan_hash()).value());
    run_alone(call, pass, from, options);
  }

  // Runs a pass whose graph is on the members alone.
  void run_alone(CallOnLine& call, JointPass& pass, const Roots& from, const BackwardOptions& options) {
    try {
      const Running running(record());
      pass.run(from.edges, from.seeds);
    } catch (...) {
      // The others do not know of the failure, and would wait.
      const Error error = current_error();
      call.end_mesh(error);
      throw error;
    }
    tell(call, pass.failure(), {});
    commit(Id{0, ++passes_}, pass.take_gradients());
    if (!options.retain_graph) pass.free_saved();
  }

  // Runs a pass of several workers. The context's creator begins it at this call's entry, where all members come in.
  // Each member has its verdict before the message of its initiator.
  void run_with_others(CallOnLine& call, const std::shared_ptr<RootsNode>& entry, const BackwardOptions& options) {
    const Nanos timeout = options.timeout > 0 ? options.timeout : line_.program->mesh().timeout();
    std::optional<Error> failure;
    if (is_own()) {
      try {
        BackwardOptions pass;
        pass.retain_graph = options.retain_graph;
        pass.timeout = timeout;
        run_pass(autograd::Roots{{autograd::Edge{entry, 0}}, {Tensor()}}, pass);
      } catch (...) {
        failure = current_error();
      }
    }
    if (timeout > 0) {
      call.set_timeout(in_time(timeout));
    } else {
      call.wait_for_ever();
    }
    tell(call, failure, {});
  }

  // A patience a little longer than that of the pass, which ends by its own deadline and reports that.
  static Nanos in_time(Nanos timeout) {
    const Nanos bounded = std::min(timeout, kNever / 2);
    return bounded + std::min(bounded / 4, kSecond);
  }

  // The numbers of a word.
  static constexpr size_t kEntries = 0;
  static constexpr size_t kEntryCount = 1;
  static constexpr size_t kReachesOthers = 2;

  static uint64_t hash_of(const std::vector<EntryName>& entries) {
    Fingerprint fingerprint;
    for (const EntryName& entry : entries) fingerprint.add(entry.call).add(entry.line);
    return fingerprint.value();
  }

  static Word::Numbers numbers_of(const JointPass& pass) {
    const std::vector<EntryName> entries = pass.entries();
    return {hash_of(entries), entries.size(), pass.reaches_others()};
  }

  // Parts of some members alone lead to the roots: the other members continue from the same entries, with zeros. Gives
  // the new words of all members.
  static Tensor reach_entries_of_all(CallOnLine& call, JointPass& pass, const Tensor& rows) {
    const std::vector<EntryName> own = pass.entries();
    uint64_t most = 1;
    for (int64_t position = 0; position < rows.shape()[0]; ++position) {
      most = std::max(most, Word::number_in(rows, position, kEntryCount));
    }
    Tensor row = Tensor::empty(Dtype::kInt64, {static_cast<int64_t>(2 * most)});
    auto* items = row.mutable_data_as<int64_t>();
    std::fill_n(items, row.count(), 0);
    for (size_t i = 0; i < own.size(); ++i) {
      items[2 * i] = static_cast<int64_t>(own[i].call);
      items[2 * i + 1] = static_cast<int64_t>(own[i].line);
    }
    const Tensor all = call.gather_words(row);
    std::set<EntryName> entries;
    for (int64_t i = 0; i + 1 < all.count(); i += 2) {
      const int64_t* entry = all.data_as<int64_t>() + i;
      if (entry[0] != 0) entries.insert({static_cast<uint64_t>(entry[0]), static_cast<uint64_t>(entry[1])});
    }
    std::optional<Error> failure;
    try {
      pass.reach_entries({entries.begin(), entries.end()});
    } catch (...) {
      failure = current_error();
    }
    return tell(call, failure, numbers_of(pass));
  }

  const Line line_;
  const uint64_t number_;
  std::atomic<uint64_t> passes_{0};
};

}  // namespace

std::shared_ptr<Context> make_joint_context(const Line& line, Dautograd& dautograd) {
  if (!line.name.empty()) {
    fail(Status::kInvalidArgument, "context_create_joint: give the mesh itself, not its line \"{}\"", line.name);
  }
  CallOnLine call(line, "context_create_joint");
  call.note("context_create_joint", Fingerprint().add("context_create_joint").value());
  const uint64_t number = line.program->next_context();
  return std::make_shared<JointContext>(dautograd.join_context(line.program->mesh(), number), line, number);
}

}  // namespace distag::spmd
