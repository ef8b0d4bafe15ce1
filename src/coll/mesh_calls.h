#pragma once

#include <deque>
#include <memory>
#include <string>

#include "coll/mesh_end.h"
#include "coll/mesh_lines.h"
#include "coll/mesh_matching.h"
#include "coll/mesh_place.h"
#include "coll/mesh_waiting.h"

namespace distag {

// The calls that this member makes on a mesh, from their number to their end. On the loop.
//
// A call that the program makes has a number on its line, the same on all members, even if it fails on its arguments. A
// call that cannot get its number, or fails here alone after it has one, ends the mesh: the others would wait for it.
// stats.open is the number of calls of the program that have begun and not ended.
class MeshCalls {
 public:
  using Result = std::shared_ptr<Future<Tensor>>;

  MeshCalls(const MeshPlace& place, MeshLines& lines, MeshStats& stats, MeshEnd& end, MeshMatching& matching,
            MeshWaiting& waiting)
      : place_(place), lines_(lines), stats_(stats), end_(end), matching_(matching), waiting_(waiting) {}

  // Throw if the call fails when it begins.
  void begin(const std::shared_ptr<Mesh>& mesh, const CollectiveCall& call, const Result& future);
  void begin(const std::shared_ptr<Mesh>& mesh, const RedistributeCall& call, const Result& future);
  // A call that sends nothing.
  void note(const std::string& line, const std::string& text, uint64_t fingerprint);
  // Called when a collective has its result.
  void finish(const std::shared_ptr<OpenCollective>& call);

  MeshSnapshot snapshot() const;

 private:
  using OpenPointer = std::shared_ptr<OpenCollective>;

  template <typename Begin>
  void attempt(const std::string& line, Begin begin);
  void check(const std::string& line) const;
  void begin_collective(const std::shared_ptr<Mesh>& mesh, const CollectiveCall& call, const Result& future);
  void begin_redistribute(const std::shared_ptr<Mesh>& mesh, const RedistributeCall& call, const Result& future);
  OpenPointer add(const std::shared_ptr<Mesh>& mesh, const std::string& line, std::string text, uint64_t fingerprint,
                  Nanos timeout, Nanos time_left, const Result& future);
  void number_failed(const std::string& line, std::string text, const Error& error);
  void on_begin_failed(const OpenPointer& open, const std::string& line);
  Error overloaded(const std::string& line) const;
  void make_room(const std::shared_ptr<Mesh>& mesh, const std::string& line);

  const MeshPlace& place_;
  MeshLines& lines_;
  MeshStats& stats_;
  MeshEnd& end_;
  MeshMatching& matching_;
  MeshWaiting& waiting_;
  std::deque<MeshSnapshot::Move> moves_;  // the last ones, for reports
};

}  // namespace distag
