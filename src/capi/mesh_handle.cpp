#include "capi/mesh.h"

#include "base/named_future.h"

using namespace distag;
using namespace distag::capi;

namespace distag::capi {
namespace {

// Completes with the mesh as its users hold it: after the last of them this worker leaves the mesh.
std::shared_ptr<Future<std::shared_ptr<MeshUse>>> in_use(const Meshes::Made& made, const std::string& creation) {
  auto use = make_named<std::shared_ptr<MeshUse>>(creation);
  use->set_canceller([weak = std::weak_ptr(made)] {
    if (const auto cancelled = weak.lock()) cancelled->cancel();
  });
  pass_on(made, use, [](const std::shared_ptr<Mesh>& mesh) {
    try {
      return std::make_shared<MeshUse>(mesh);
    } catch (...) {
      mesh->leave();  // nothing else would
      throw;
    }
  });
  return use;
}

}  // namespace

MeshShared::MeshShared(layout::MeshShape shape) : shape_(std::move(shape)) {}

MeshShared::MeshShared(distag_worker& worker, const Meshes::Made& made, std::string creation)
    : worker_(Ref<distag_worker>::share(&worker)), creation_(std::move(creation)), made_(in_use(made, creation_)) {}

Mesh* MeshShared::mesh() const {
  if (made_ == nullptr) return nullptr;
  if (!made_->is_done()) refuse(Status::kInvalidState, "the mesh is being made: wait for its future first");
  return &made_->value()->mesh();
}

const layout::MeshShape& MeshShared::shape() const { return shape_ ? *shape_ : mesh()->shape(); }

Mesh& MeshShared::need_mesh() const {
  if (made_ == nullptr) {
    refuse(Status::kInvalidState, "mesh \"{}\" was made without a worker: it serves for specs, boxes and pictures only",
           shape_->name());
  }
  worker_->check_up();
  return *mesh();
}

spmd::Program& MeshShared::need_program() {
  need_mesh();
  MutexLock lock(mutex_);
  if (!program_) {
    auto warn = [worker = worker_.get()](const std::string& text) {
      worker->core().log().write(LogLevel::kWarning, text);
    };
    program_.emplace(made_->value(), warn, this);
    try {
      worker_->core().programs().add({shared_from_this(), &*program_});
    } catch (...) {
      program_.reset();
      throw;
    }
  }
  return *program_;
}

spmd::Line MeshShared::line(const std::string& name) {
  return {std::shared_ptr<spmd::Program>(shared_from_this(), &need_program()), name};
}

}  // namespace distag::capi

distag_mesh_info distag_mesh::info() {
  const layout::MeshShape& shape = shared_->shape();
  distag_mesh_info info{};
  info.ndim = static_cast<uint32_t>(shape.axis_count());
  info.count = shape.count();
  info.position = shared_->mesh() == nullptr ? -1 : shared_->mesh()->position();
  info.name = shape.name().c_str();
  info.shape = shape.sizes().data();
  info.ranks = shape.ranks().data();
  info.granules = shape.granules().data();
  MutexLock lock(mutex_);
  if (axis_names_.empty()) {
    for (const std::string& name : shape.axis_names()) axis_names_.push_back(name.c_str());
  }
  info.axis_names = axis_names_.data();
  return info;
}
