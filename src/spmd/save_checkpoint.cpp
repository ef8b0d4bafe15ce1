// Each member writes its parts to a file of its own under a fresh name. Once all have, position 0 renames an index over
// the old one: that instant is the change. The next save removes files of a crashed one: position 0 holds the folder's
// lock, so a file that no index names belongs to no running save. Where locks do not keep others out, such files stay.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>

#include "base/error.h"
#include "base/folder_lock.h"
#include "layout/spec_text.h"
#include "spmd/agreement.h"
#include "spmd/checkpoint.h"
#include "spmd/checkpoint_files.h"
#include "spmd/checkpoint_items.h"
#include "spmd/saved_alike.h"

namespace distag::spmd {
namespace {

using layout::MeshShape;
using store::kPiece;

struct Save {
  CallOnLine& call;
  const std::string& folder;
  const SavedValue& saved;
  std::string id;
  // At position 0 only.
  std::unique_ptr<FolderLock> lock;
  store::Index before;  // the index at the start, if the lock does not keep others out

  const MeshShape& mesh() const { return call.line().program->shape(); }
  int64_t position() const { return call.line().program->position(); }
  std::string file_of(int64_t member) const { return shard_name(id, member, mesh().count()); }
};

std::vector<store::StoredTensor> tensors_of(const Save& save, const std::vector<WrittenPart>& parts) {
  std::vector<store::StoredTensor> tensors;
  std::set<std::string> names;
  for (const WrittenPart& part : parts) {
    const SavedTensor& tensor = save.saved.tensors[part.tensor];
    const std::string name = store::name_of_part(tensor.path, tensor.shape, part.box.offset, part.box.extent);
    if (!names.insert(name).second) fail(Status::kInvalidArgument, "two entries have the name \"{}\"", name);
    tensors.push_back({name, tensor.dtype, part.box.extent, 0});
  }
  return tensors;
}

size_t pieces_of(const Save& save, const std::vector<WrittenPart>& parts) {
  size_t count = 0;
  for (const WrittenPart& part : parts) {
    const uint64_t size = store::bytes_of(part.box.extent, save.saved.tensors[part.tensor].dtype).value_or(0);
    count += (size + kPiece - 1) / kPiece;
  }
  return count;
}

// Gives the size of the file, the crc of its header, and the crcs of the pieces of all parts.
std::vector<int64_t> write_parts(const Save& save) {
  const std::vector<WrittenPart> parts = parts_written_by(save.mesh(), save.saved.tensors, save.position());
  std::vector<store::StoredTensor> tensors = tensors_of(save, parts);
  const std::string header = store::print_header(tensors);
  DataFile file = DataFile::create(path_in(save.folder, save.file_of(save.position())));
  file.append(header.data(), header.size());
  std::vector<int64_t> numbers{0, store::crc32_of(0, header.data(), header.size())};
  for (const WrittenPart& part : parts) {
    const Tensor elements = elements_of(save.mesh(), save.saved.tensors[part.tensor], part.box, save.position());
    for (size_t from = 0; from < elements.byte_size(); from += kPiece) {
      const size_t some = std::min<size_t>(kPiece, elements.byte_size() - from);
      numbers.push_back(store::crc32_of(0, elements.data() + from, some));
      file.append(elements.data() + from, some);
    }
  }
  file.sync();
  numbers[0] = static_cast<int64_t>(file.size());
  return numbers;
}

store::Index index_of(const Save& save, const Outcomes& written) {
  store::Index index;
  index.id = save.id;
  const MeshShape& mesh = save.mesh();
  for (size_t axis = 0; axis < mesh.axis_count(); ++axis) {
    index.mesh += fmt::format("{}{}={}", axis == 0 ? "" : " ", mesh.axis_name(axis), mesh.size(axis));
  }
  index.tree = save.saved.tree;
  const std::vector<SavedTensor>& tensors = save.saved.tensors;
  std::vector<std::vector<store::StoredBox>> boxes(tensors.size());
  store::Arena arena;  // of the boxes
  for (int64_t member = 0; member < mesh.count(); ++member) {
    const std::vector<int64_t>& numbers = written.numbers[static_cast<size_t>(member)];
    const store::StoredFile& file = *index.files.emplace(save.file_of(member), static_cast<uint32_t>(numbers[1])).first;
    const std::vector<uint32_t> sums(numbers.begin() + 2, numbers.end());
    size_t next = 0;
    for (const auto& [i, box] : parts_written_by(mesh, tensors, member)) {
      const uint64_t size = store::bytes_of(box.extent, tensors[i].dtype).value_or(0);
      const auto pieces = std::span(sums).subspan(next, (size + kPiece - 1) / kPiece);
      next += pieces.size();
      const std::string name = store::name_of_part(tensors[i].path, tensors[i].shape, box.offset, box.extent);
      boxes[i].push_back({arena.copy_list(box.offset), arena.copy_list(box.extent), arena.copy_text(name),
                          arena.copy_list(pieces), &file});
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string spec = print_spec(mesh, tensors[i].spec);
    index.add({tensors[i].path, tensors[i].shape, spec, boxes[i], tensors[i].dtype});
  }
  index.sort();
  return index;
}

void check_all_files_are_here(const Save& save, const Outcomes& written) {
  for (int64_t member = 0; member < save.mesh().count(); ++member) {
    const auto file = DataFile::open(path_in(save.folder, save.file_of(member)));
    const auto size = static_cast<uint64_t>(written.numbers[static_cast<size_t>(member)][0]);
    if (file && file->size() == size) continue;
    fail(Status::kInvalidState,
         "\"{}\": rank {} has written its part, and rank {} does not see it: all members need the same folder",
         save.folder, save.mesh().ranks()[static_cast<size_t>(member)], save.mesh().ranks()[0]);
  }
}

// At position 0: from here on no other save of this folder begins, unless the file system lacks such locks.
void take_folder(Save& save) {
  make_folder(save.folder);
  save.lock = FolderLock::try_take(save.folder);
  if (!save.lock) fail(Status::kInvalidState, "another save is under way in \"{}\"", save.folder);
  if (!save.lock->keeps_others_out()) save.before = index_in(save.folder);
}

void check_none_came_between(const Save& save) {
  if (save.lock->keeps_others_out() || index_in(save.folder).id == save.before.id) return;
  fail(Status::kInvalidState, "another save came between in \"{}\": what that one saved stays", save.folder);
}

// Removes files with our names that the index does not name. A file that cannot be removed stays for the next save.
void remove_leftovers(const Save& save, const store::Index& index) noexcept {
  try {
    for (const std::string& name : list_folder(save.folder)) {
      if (!is_name_of_ours(name) || index.files.contains(name)) continue;
      if (save.lock->keeps_others_out() || save.before.files.contains(name)) {
        remove_file(path_in(save.folder, name));
      }
    }
  } catch (...) {
    return;  // a later save removes them
  }
}

// At position 0: after the rename, readers find the new checkpoint, so nothing may fail.
void replace_index(const Save& save, const Outcomes& written) {
  check_all_files_are_here(save, written);
  const store::Index index = index_of(save, written);
  const std::string text = store::print_index(index);
  const std::string name = path_in(save.folder, store::kIndexName);
  const std::string beside = name + "." + save.id;
  try {
    DataFile file = DataFile::create(beside);
    file.append(text.data(), text.size());
    file.sync();
    sync_folder(save.folder);  // the names of the files, before the index that names them
    check_none_came_between(save);
    rename_file(beside, name);
  } catch (...) {
    remove_file(beside);
    throw;
  }
  try {
    sync_folder(save.folder);
  } catch (...) {
    return;  // whole in any case; the old files stay, in case the disk still has the old index
  }
  remove_leftovers(save, index);
}

// Removes this member's file after a failure that all members know of: no index names it, or ever will.
template <typename Step>
Outcomes agree_or_remove(const Save& save, size_t count, Step step) {
  Outcomes outcomes = agree(save.call, count, step);
  if (!outcomes.failure) return outcomes;
  remove_file(path_in(save.folder, save.file_of(save.position())));
  throw *outcomes.failure;
}

std::string text_of_save(const std::string& folder) { return fmt::format("checkpoint_save(\"{}\")", folder); }

void save_items(CallOnLine& call, const std::string& folder, SavedValue& saved, Nanos timeout, Random& random) {
  check_saved_alike(call, text_of_save(folder), saved);
  if (timeout == 0) call.wait_for_ever();  // all members are here, and disks may be slow
  Save save{call, folder, saved, "", nullptr, {}};
  const Outcomes begun = agree(call, 1, [&]() -> std::vector<int64_t> {
    if (save.position() != 0) return {0};
    take_folder(save);
    return {static_cast<int64_t>(random.next())};
  });
  if (begun.failure) throw *begun.failure;
  sum_parts(call, saved);
  save.id = fmt::format("{:016x}", static_cast<uint64_t>(begun.numbers[0][0]));
  size_t most = 0;
  for (int64_t member = 0; member < save.mesh().count(); ++member) {
    most = std::max(most, pieces_of(save, parts_written_by(save.mesh(), saved.tensors, member)));
  }
  const Outcomes written = agree_or_remove(save, 2 + most, [&] { return write_parts(save); });
  agree_or_remove(save, 1, [&]() -> std::vector<int64_t> {
    if (save.position() != 0) return {};
    replace_index(save, written);
    save.lock.reset();  // before any member can report that it is saved
    return {};
  });
}

// Notes the call, and gives the value to be saved. The save itself compares the members' values.
SavedValue note_save(CallOnLine& call, const std::string& what, const Value& value, bool are_kept) {
  try {
    SavedValue saved = items_of(*call.line().program, value, are_kept);
    call.note(what, Fingerprint().add(what).value());
    return saved;
  } catch (...) {
    call.note_failure(what, current_error());
    throw;
  }
}

}  // namespace

void save_checkpoint(const Line& line, const std::string& folder, const Value& value, Nanos timeout, Random& random) {
  CallOnLine call(line, "checkpoint_save");
  SavedValue saved = note_save(call, text_of_save(folder), value, false);
  const WorkTurn turn(line);
  call.set_timeout(timeout);
  save_items(call, folder, saved, timeout, random);
}

Begun save_checkpoint_async(const Line& line, const std::string& folder, const Value& value, Nanos timeout,
                            std::unique_ptr<Random> random, OnLost on_lost) {
  CallOnLine call(line, "checkpoint_save_async");
  const std::string what = fmt::format("checkpoint_save_async(\"{}\")", folder);
  auto saved = std::make_unique<SavedValue>(note_save(call, what, value, true));
  auto work = [what, folder, timeout, saved = std::move(saved), random = std::move(random)](const Line& own) {
    CallOnLine step(own, "checkpoint_save");
    step.note(what, Fingerprint().add(what).value());
    step.set_timeout(timeout);
    save_items(step, folder, *saved, timeout, *random);
    return Value();
  };
  auto lost = [what = text_of_save(folder), on_lost = std::move(on_lost)](const Error& error) {
    on_lost(Error(error).add_context(what));
  };
  return begin_behind(line, "checkpoint_save", std::move(work), std::move(lost));
}

}  // namespace distag::spmd
