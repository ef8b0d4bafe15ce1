// Position 0 reads the index and sends it. Each member reads the pieces that meet its parts and checks them, a block at
// a time, and makes the result of the load. Once all members have, each reads them again, into its tensors: to keep the
// elements from the first time would take the memory of the parts once more. Failures come before the first element is
// written, unless a file that was whole cannot be read again: that ends the mesh.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

#include "autograd/autograd.h"
#include "base/error.h"
#include "layout/spec_text.h"
#include "spmd/agreement.h"
#include "spmd/checkpoint.h"
#include "spmd/checkpoint_files.h"
#include "spmd/sharding.h"
#include "store/tree.h"
#include "tensor/access.h"
#include "tensor/deferred.h"
#include "tensor/shape_only.h"

namespace distag::spmd {
namespace {

using layout::Box;
constexpr int kMostTries = 100;  // a concurrent save removes files: then the index is read again

// A tensor that gets its elements.
struct Target {
  std::string path;
  Tensor tensor;
  Tensor memory;  // this member's part, or the plain tensor itself
  Box box;
};

using Targets = std::vector<Target>;

Box whole_box(const Dims& shape) {
  Dims zero;
  zero.resize(shape.size());
  return {zero, shape};
}

Targets targets_of(const Program* program, const Value& into) {
  Targets targets;
  if (into.is_null()) return targets;
  store::print_tree(into, [&](const std::string& path, const Tensor& tensor) {
    check_not_shape_only(tensor);
    if (autograd::has_history(tensor)) {
      fail(Status::kInvalidState, "\"{}\": {} has a history: give a leaf", path, describe(tensor));
    }
    Target target{path, tensor, tensor, whole_box(tensor.shape())};
    if (const Sharding* sharding = Sharding::of(tensor)) {
      if (&sharding->program() != program) {
        fail(Status::kInvalidArgument, "\"{}\": {} is of another mesh: load it there", path, sharding->describe());
      }
      const Lying lying = sharding->lying();
      if (program->shape().used(lying.spec.partial()) != 0) {
        fail(Status::kInvalidState, "\"{}\": {} is a sum of parts, which is not written", path, sharding->describe());
      }
      target.memory = lying.shard;
      target.box = box_of(program->shape(), lying.spec, tensor.shape(), program->position());
    }
    if (target.memory.storage().is_read_only()) {
      fail(Status::kInvalidState, "\"{}\": {} is over memory of the host: clone it first", path, describe(tensor));
    }
    targets.push_back(std::move(target));
  });
  return targets;
}

// Reads the elements of a target whose entry is there.
void read_into(const StoredElements& stored, const Target& target, const Destination& to, ReadBlock& block) {
  stored.read(*stored.index().find(target.path), target.box, to, block);
}

// Checks that each target can get its elements, and these themselves.
void check_elements(const StoredElements& stored, const Targets& targets, const std::string& folder, ReadBlock& block) {
  for (const Target& target : targets) {
    const store::StoredEntry* const entry = stored.index().find(target.path);
    if (entry == nullptr) fail(Status::kNotFound, "\"{}\" has no entry \"{}\"", folder, target.path);
    stored.check_dtype(*entry);
    if (entry->dtype != target.tensor.dtype() || !std::ranges::equal(entry->shape, target.tensor.shape())) {
      fail(Status::kInvalidArgument, "\"{}\": entry \"{}\" is {} of shape {}, and the tensor is {}", folder,
           target.path, dtype_name(entry->dtype), to_string(Dims(entry->shape)), describe(target.tensor));
    }
  }
  for (const Target& target : targets) {
    target.memory.storage().make_elements();
    read_into(stored, target, {nullptr, target.memory.strides()}, block);
  }
}

// The elements of this member that are new when a load fails.
enum class Written { kNone, kSome, kAll };

// Writes all targets in one instant: their readers wait while files are read. Takes no memory for elements once the
// first is written.
void write_elements(const StoredElements& stored, const Targets& targets, ReadBlock& block, Written& written) {
  std::vector<Tensor> memory;
  for (const Target& target : targets) memory.push_back(target.memory);
  const TensorWriter writer(memory);
  try {
    for (size_t i = 0; i < targets.size(); ++i) {
      if (memory[i].count() == 0) continue;
      std::byte* const first = memory[i].mutable_data();
      written = Written::kSome;
      read_into(stored, targets[i], {first, memory[i].strides()}, block);
    }
  } catch (...) {
    if (written == Written::kNone) throw;
    throw current_error().add_context("elements that were whole cannot be read again");
  }
  if (written == Written::kSome) written = Written::kAll;
}

// Says in the error what the load has left in the tensors of this member.
[[noreturn]] void fail_after(Written written, Error error, bool is_alone) {
  if (written == Written::kSome) throw error.add_context("some tensors may have new or damaged elements");
  if (written == Written::kAll) throw error.add_context("the tensors here have their new elements");
  if (is_alone) throw error;
  throw error.add_context("the tensors here are as before, those of other members may have new elements");
}

// Makes the elements of a tensor that `into` lacks, where they are wanted. An entry of a dtype that tensors lack has
// its shape, and fails here.
class FromFiles final : public Initialiser {
 public:
  FromFiles(std::shared_ptr<const StoredElements> stored, const store::StoredEntry& entry)
      : stored_(std::move(stored)), entry_(entry) {}
  void fill(const Dims& offset, const Dims& extent, std::byte* out) const override {
    ReadBlock block;
    stored_->read(entry_, {offset, extent}, {out, row_major_strides(extent)}, block);
  }

 private:
  const std::shared_ptr<const StoredElements> stored_;
  const store::StoredEntry& entry_;
};

Value result_of(const std::shared_ptr<const StoredElements>& stored, const Targets& targets,
                const std::string& folder) {
  std::map<std::string_view, Tensor> known;
  for (const Target& target : targets) known.emplace(target.path, target.tensor);
  return store::value_of(stored->index(), folder, [&](const store::StoredEntry& entry) {
    if (const auto found = known.find(entry.path); found != known.end()) return Value(found->second);
    return Value(Tensor::deferred(entry.dtype, Dims(entry.shape), std::make_shared<FromFiles>(stored, entry)));
  });
}

uint64_t fingerprint_of(const layout::MeshShape& mesh, const std::string& folder, const Targets& targets) {
  Fingerprint fingerprint;
  fingerprint.add(folder);
  for (const Target& target : targets) {
    fingerprint.add(target.path).add(describe(target.tensor));
    if (const Sharding* sharding = Sharding::of(target.tensor)) {
      fingerprint.add(print_spec(mesh, sharding->lying().spec));
    }
  }
  return fingerprint.value();
}

// Sends the text of the index from position 0 to all members. Throws on all if position 0 cannot read it.
std::string share_index(CallOnLine& call, const std::string& folder) {
  std::string text;
  const Outcomes read = agree(call, 1, [&]() -> std::vector<int64_t> {
    if (call.line().program->position() == 0) text = read_index_text(folder);
    return {static_cast<int64_t>(text.size())};
  });
  if (read.failure) throw *read.failure;
  const auto size = static_cast<size_t>(read.numbers[0][0]);
  Tensor words = Tensor::empty(Dtype::kInt64, {static_cast<int64_t>((size + 7) / 8)});
  std::memset(words.mutable_data(), 0, words.byte_size());
  std::memcpy(words.mutable_data(), text.data(), text.size());
  const Tensor all = call.broadcast(words, 0);
  return {reinterpret_cast<const char*>(all.data()), size};
}

}  // namespace

namespace {

struct Load {
  std::string what;
  Targets targets;  // the tensors that get elements
  uint64_t fingerprint;
};

// Checks the arguments of a load, and notes its call on the line.
Load note_load(CallOnLine& call, const std::string& folder, const Value& into, bool is_async) {
  std::string what = fmt::format("checkpoint_load{}(\"{}\")", is_async ? "_async" : "", folder);
  const Program& program = *call.line().program;
  try {
    Targets targets = targets_of(&program, into);
    const uint64_t fingerprint = fingerprint_of(program.shape(), what, targets);
    call.note(what, fingerprint);
    return {std::move(what), std::move(targets), fingerprint};
  } catch (...) {
    call.note_failure(what, current_error());
    throw;
  }
}

// Waits until all members are here. Then slow disks are waited for without a limit, unless the call has a timeout.
void meet(CallOnLine& call, Nanos timeout) {
  agree(call, 0, [] { return std::vector<int64_t>(); });
  if (timeout == 0) call.wait_for_ever();
}

// A failure ends the mesh: other members may have written theirs.
void write_on_all(CallOnLine& call, const StoredElements& stored, const Targets& targets, ReadBlock& block) {
  Written own = Written::kNone;
  try {
    const Outcomes written = agree(call, 0, [&]() -> std::vector<int64_t> {
      write_elements(stored, targets, block, own);
      return {};
    });
    if (!written.failure) return;
    call.end_mesh(*written.failure);
    throw *written.failure;
  } catch (...) {
    fail_after(own, current_error(), false);
  }
}

// `failure`: an earlier one of this member.
Value load_items(CallOnLine& call, const std::string& folder, const Targets& targets,
                 const std::optional<Error>& failure, Nanos timeout) {
  std::string last_id;
  std::optional<Error> last;
  meet(call, timeout);
  for (int tries = 0; tries < kMostTries; ++tries) {
    store::Index index = store::parse_index(share_index(call, folder), path_in(folder, store::kIndexName));
    if (last && index.id == last_id) break;
    last_id = index.id;
    std::shared_ptr<const StoredElements> stored;
    ReadBlock block;
    Value result;
    const Outcomes checked = agree(call, 0, [&]() -> std::vector<int64_t> {
      if (failure) throw *failure;
      stored = std::make_shared<const StoredElements>(std::make_unique<OpenFiles>(folder_of(folder)), std::move(index));
      check_elements(*stored, targets, folder, block);
      result = result_of(stored, targets, folder);
      return {};
    });
    if (!checked.failure) {
      write_on_all(call, *stored, targets, block);
      return result;
    }
    last = checked.failure;
    if (last->status() != Status::kNotFound) break;
  }
  throw *last;
}

}  // namespace

Value load_checkpoint(const Line& line, const std::string& folder, const Value& into, Nanos timeout) {
  CallOnLine call(line, "checkpoint_load");
  const Targets targets = note_load(call, folder, into, false).targets;
  const WorkTurn turn(line);
  call.set_timeout(timeout);
  return load_items(call, folder, targets, std::nullopt, timeout);
}

Begun load_checkpoint_async(const Line& line, const std::string& folder, const Value& into, Nanos timeout,
                            OnLost on_lost) {
  CallOnLine call(line, "checkpoint_load_async");
  auto load = std::make_unique<Load>(note_load(call, folder, into, true));
  std::optional<Error> failure;
  try {
    for (const Target& target : load->targets)
      target.memory.storage().make_elements();  // here, where host code may run
  } catch (...) {
    failure = current_error();
  }
  auto work = [folder, timeout, load = std::move(load), failure](const Line& own) {
    CallOnLine step(own, "checkpoint_load");
    step.note(load->what, load->fingerprint);
    step.set_timeout(timeout);
    return load_items(step, folder, load->targets, failure, timeout);
  };
  return begin_behind(line, "checkpoint_load", std::move(work), std::move(on_lost));
}

namespace {

// Runs `read` on the checkpoint as it is now; again with a new index if a concurrent save removes the files.
template <typename Read>
auto read_alone(const std::string& folder, const Read& read) {
  std::optional<std::string> last_id;
  for (int tries = 0;; ++tries) {
    auto files = std::make_unique<OpenFiles>(folder_of(folder));
    store::Index index = read_index(folder, *files);
    const bool is_last = index.id == last_id || tries + 1 == kMostTries;
    last_id = index.id;
    try {
      return read(std::make_shared<const StoredElements>(std::move(files), std::move(index)));
    } catch (const Error& error) {
      if (is_last || error.status() != Status::kNotFound) throw;
    }
  }
}

}  // namespace

Value load_checkpoint_alone(const std::string& folder, const Value& into) {
  const Targets targets = targets_of(nullptr, into);
  ReadBlock block;
  std::shared_ptr<const StoredElements> checked;
  Value result = read_alone(folder, [&](const std::shared_ptr<const StoredElements>& stored) {
    check_elements(*stored, targets, folder, block);
    checked = stored;
    return result_of(stored, targets, folder);
  });
  Written written = Written::kNone;
  try {
    write_elements(*checked, targets, block, written);  // once: a failure may leave tensors with new elements
  } catch (...) {
    fail_after(written, current_error(), true);
  }
  return result;
}

void check_checkpoint(const std::string& folder) {
  read_alone(folder, [&](const std::shared_ptr<const StoredElements>& stored) {
    store::value_of(stored->index(), folder, [](const store::StoredEntry&) { return Value(); });
    stored->check();
  });
}

}  // namespace distag::spmd
