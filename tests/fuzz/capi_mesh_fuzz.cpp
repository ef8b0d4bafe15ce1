// Runs a program of calls on meshes without a worker, specs, sharded, deferred and exchanged tensors; see program.h.
#include "fuzz/program.h"

namespace {

using namespace distag::fuzz;

distag_status on_box(void* host, const int64_t*, const int64_t*, size_t, void* buffer, size_t capacity,
                     distag_error* err) {
  std::memset(buffer, 0, capacity);
  const Host& mine = *static_cast<Host*>(host);
  return mine.program->call_back(mine, nullptr, nullptr, err);
}

class MeshProgram final : public Program {
 public:
  using Program::Program;

 private:
  void step() override;
  void make_deferred();
  void read_tensor();
  void make_mesh();
  void ask_mesh();
  void shard();
  void exchange();
};

void MeshProgram::step() {
  using Step = void (MeshProgram::*)();
  constexpr Step kSteps[] = {&MeshProgram::make_tensor,   &MeshProgram::drop,        &MeshProgram::apply,
                             &MeshProgram::make_deferred, &MeshProgram::read_tensor, &MeshProgram::make_mesh,
                             &MeshProgram::ask_mesh,      &MeshProgram::shard,       &MeshProgram::exchange};
  (this->*kSteps[in_.below(std::size(kSteps))])();
}

void MeshProgram::make_deferred() {
  const std::vector<int64_t> shape = dims();
  const distag_dtype type = dtype();
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  options.init = static_cast<uint32_t>(in_.below(6));
  options.scale = in_.number();
  options.shift = in_.number();
  if (in_.flag()) options.source = on_box;
  options.user_data = make_host();
  options.destroy = destroy_host;
  make<distag_tensor>([&](distag_tensor** out, distag_error* err) {
    return distag_tensor_create_deferred(type, shape.data(), shape.size(), &options, out, err);
  });
}

void MeshProgram::read_tensor() {
  distag_tensor* const tensor = pick<distag_tensor>();
  double buffer[kMostElements];
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  const bool is_there =
      call([&](distag_error* err) { return distag_tensor_get_info(tensor, &info, err); }) == DISTAG_OK;
  check(!is_there || (info.ndim == distag_tensor_get_ndim(tensor) && info.size == distag_tensor_get_size(tensor)));
  call([&](distag_error* err) { return distag_tensor_copy_data(tensor, buffer, sizeof buffer, err); });
  distag_tensor_get_data(tensor);
  distag_tensor_get_spec(tensor);
  make<distag_tensor>([&](distag_tensor** out, distag_error* err) { return distag_neg(tensor, out, err); });
}

void MeshProgram::make_mesh() {
  const std::vector<int64_t> shape = in_.integers(8);
  const std::vector<int64_t> numbers = in_.integers(8);
  const std::vector<int32_t> ranks(numbers.begin(), numbers.end());
  std::vector<const char*> names(shape.size());
  for (const char*& name : names) name = text();
  const uint8_t kind = in_.byte();
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  options.hidden_moves = kind / 8 % 5;
  if (kind > 200) options.outer_shape = shape.data();
  if (kind > 220 && numbers.size() >= 8) options.granules = numbers.data();
  make<distag_mesh>([&](distag_mesh** out, distag_error* err) {
    const size_t count = kind % 4 == 0 ? ranks.size() : std::min<size_t>(kind % 9, 8);
    return distag_mesh_create(nullptr, kind % 4 == 0 ? ranks.data() : nullptr, count, shape.data(),
                              kind % 2 == 0 ? names.data() : nullptr, shape.size(), &options, out, err);
  });
}

void MeshProgram::ask_mesh() {
  distag_mesh* const mesh = pick<distag_mesh>();
  const char* const spec = text();
  const std::vector<int64_t> shape = in_.integers(4);
  int64_t offset[4];
  int64_t extent[4];
  int64_t replica = 0;
  char buffer[64];
  size_t size = 0;
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  const size_t capacity = in_.byte() % (sizeof buffer + 1);
  const uint32_t form = in_.byte() % 7;
  distag_picture_options options = DISTAG_PICTURE_OPTIONS_INIT;
  options.format = form;
  options.width = 16 * in_.byte();
  options.column_dim = static_cast<uint32_t>(in_.below(3));
  call([&](distag_error* err) { return distag_mesh_get_info(mesh, &info, err); });
  call([&](distag_error* err) {
    return distag_mesh_copy_box(mesh, spec, shape.data(), shape.size(), in_.integer(), offset, extent, &replica, err);
  });
  call([&](distag_error* err) {
    return distag_mesh_copy_spec(mesh, spec, shape.size(), form, buffer, capacity, &size, err);
  });
  call([&](distag_error* err) {
    return distag_visualize_sharding(mesh, spec, shape.data(), shape.size(), &options, buffer, capacity, &size, err);
  });
  call([&](distag_error* err) { return distag_mesh_copy_report(mesh, buffer, capacity, &size, err); });
  make<distag_mesh>([&](distag_mesh** out, distag_error* err) { return distag_mesh_open_line(mesh, spec, out, err); });
}

void MeshProgram::shard() {
  distag_mesh* const mesh = pick<distag_mesh>();
  distag_tensor* const tensor = pick<distag_tensor>();
  const char* const spec = text();
  const uint8_t kind = in_.byte();
  call([&](distag_error* err) { return distag_tensor_mark_sharding(tensor, mesh, spec, kind % 4 - 1, err); });
  make<distag_tensor>([&](distag_tensor** out, distag_error* err) {
    switch (kind % 4) {
      case 0:
        return distag_redistribute(tensor, spec, kind % 5, out, err);
      case 1:
        return distag_tensor_from_local(mesh, tensor, spec, nullptr, 0, nullptr, out, err);
      case 2:
        return distag_tensor_to_local(tensor, spec, out, err);
      default:
        return distag_collective(mesh, kind / 4 % 9, nullptr, tensor, nullptr, out, err);
    }
  });
  make<distag_context>(
      [&](distag_context** out, distag_error* err) { return distag_context_create_joint(mesh, out, err); });
}

// Out by DLPack and in again.
void MeshProgram::exchange() {
  distag_tensor* const tensor = pick<distag_tensor>();
  const uint32_t flags = in_.byte() % 4;
  DLManagedTensorVersioned* managed = nullptr;
  const distag_status status =
      call([&](distag_error* err) { return distag_tensor_export_dlpack(tensor, flags, &managed, err); });
  check((status == DISTAG_OK) == (managed != nullptr));
  if (managed == nullptr) return;
  make<distag_tensor>([&](distag_tensor** out, distag_error* err) {
    const distag_status imported = distag_tensor_import_dlpack(managed, out, err);
    check(imported == DISTAG_OK);
    return imported;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run_program<MeshProgram>(data, size);
  return 0;
}
