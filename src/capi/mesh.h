#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capi/worker.h"
#include "coll/mesh_use.h"
#include "spmd/program.h"

namespace distag::capi {

// The part that the handles of one mesh and of its lines share. With a worker the mesh is still being made at first.
// Thread-safe.
class MeshShared : public std::enable_shared_from_this<MeshShared> {
 public:
  explicit MeshShared(layout::MeshShape shape);  // without a worker
  MeshShared(distag_worker& worker, const Meshes::Made& made, std::string creation);

  distag_worker* worker() const { return worker_.get(); }
  const std::shared_ptr<Future<std::shared_ptr<MeshUse>>>& made() const { return made_; }
  const std::string& creation() const { return creation_; }  // as errors name it
  LineNames& lines() { return lines_; }

  // These throw INVALID_STATE while the mesh is being made, and its failure if it could not be made.
  const layout::MeshShape& shape() const;
  Mesh* mesh() const;  // nullptr without a worker
  // For calls that its members make: throws INVALID_STATE without a worker, or once that is down.
  Mesh& need_mesh() const;
  // A line of the mesh as sharded tensors use it, which keeps this object. Throws as need_mesh().
  spmd::Line line(const std::string& name);

 private:
  spmd::Program& need_program();

  const Ref<distag_worker> worker_;  // outlives the mesh
  const std::optional<layout::MeshShape> shape_;
  const std::string creation_;
  const std::shared_ptr<Future<std::shared_ptr<MeshUse>>> made_;  // nullptr without a worker
  LineNames lines_;
  Mutex mutex_;
  std::optional<spmd::Program> program_ GUARDED_BY(mutex_);  // from its first use on
};

}  // namespace distag::capi

// A mesh, or a line of it.
struct distag_mesh final : distag::capi::Handle {
 public:
  // A line has a name; the mesh itself has none. `closes`: the end of the handle closes the line.
  distag_mesh(std::shared_ptr<distag::capi::MeshShared> shared, std::string line, bool closes = true)
      : Handle(distag::capi::Kind::kMesh), shared_(std::move(shared)), line_(std::move(line)), closes_(closes) {}
  ~distag_mesh() override {
    if (closes_ && !line_.empty()) shared_->lines().close(line_);
  }

  const std::shared_ptr<distag::capi::MeshShared>& shared() const { return shared_; }
  const std::string& line_name() const { return line_; }
  distag_mesh_info info();

 private:
  const std::shared_ptr<distag::capi::MeshShared> shared_;
  const std::string line_;
  const bool closes_;
  distag::Mutex mutex_;
  std::vector<const char*> axis_names_ GUARDED_BY(mutex_);  // lent by info()
};

template <>
struct distag::capi::KindOf<distag_mesh> : std::integral_constant<distag::capi::Kind, distag::capi::Kind::kMesh> {};
