#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "spmd/program.h"

namespace distag::spmd {

// All axes of the mesh: a loader's calls go over these.
layout::Axes all_axes(const layout::MeshShape& mesh);

// Carries the parts of batches that position 0 has made to the members: each entry of a batch is a scatter on a line of
// its own, in the same order on all members. A line has room for a limited number of calls, so entries wait. On the
// loop of the mesh.
class PartScatter {
 public:
  struct Entry {
    uint64_t batch;
    size_t place;
  };

  PartScatter(const Line& line, std::string name);

  void open();
  void close(const Error& why);

  void add(uint64_t batch, size_t entries);
  // The next entry, if the line has room for it. The entry is under way until end_one().
  std::optional<Entry> begin_one();
  void end_one() { --open_; }
  std::deque<Entry> take_waiting() { return std::exchange(waiting_, {}); }

  // At position 0, where `given` has the parts of all members, entry after entry. Sends them, and gives its own part.
  std::shared_ptr<Future<Tensor>> give(Tensors& given, size_t entry);
  std::shared_ptr<Future<Tensor>> receive(Tensor room) { return scatter(std::move(room), {}); }

 private:
  std::shared_ptr<Future<Tensor>> scatter(Tensor own, Tensors pieces);
  Mesh& mesh() const { return line_.program->mesh(); }

  const Line line_;
  const std::string name_;
  Mesh::LineEnd end_;
  std::deque<Entry> waiting_;
  size_t open_ = 0;
};

}  // namespace distag::spmd
