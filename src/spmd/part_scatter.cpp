#include "spmd/part_scatter.h"

namespace distag::spmd {
namespace {

constexpr size_t kMostOpen = 64;

}  // namespace

layout::Axes all_axes(const layout::MeshShape& mesh) {
  return layout::axes_of((layout::AxisSet{1} << mesh.axis_count()) - 1);
}

PartScatter::PartScatter(const Line& line, std::string name) : line_(line), name_(std::move(name)), end_(name_) {}

void PartScatter::open() {
  assert_on_loop(mesh().loop());
  mesh().open_own_line(name_, Future<Unit>::make(), line_.name);
}

void PartScatter::close(const Error& why) {
  assert_on_loop(mesh().loop());
  mesh().close_line(end_, why);
}

void PartScatter::add(uint64_t batch, size_t entries) {
  assert_on_loop(mesh().loop());
  for (size_t i = 0; i < entries; ++i) waiting_.push_back({batch, i});
}

std::optional<PartScatter::Entry> PartScatter::begin_one() {
  assert_on_loop(mesh().loop());
  if (open_ == kMostOpen || waiting_.empty()) return std::nullopt;
  const Entry entry = waiting_.front();
  waiting_.pop_front();
  ++open_;
  return entry;
}

std::shared_ptr<Future<Tensor>> PartScatter::give(Tensors& given, size_t entry) {
  assert_on_loop(mesh().loop());
  const auto members = static_cast<size_t>(mesh().shape().count());
  Tensors pieces;
  for (size_t i = 0; i < members; ++i) pieces.push_back(std::move(given[entry * members + i]));
  const Tensor own = pieces.front();
  return scatter(own, std::move(pieces));
}

std::shared_ptr<Future<Tensor>> PartScatter::scatter(Tensor own, Tensors pieces) {
  CollectiveCall call;
  call.kind = CollectiveKind::kScatter;
  call.axes = all_axes(mesh().shape());
  call.line = name_;
  call.timeout = kForever;
  call.within = "loader";
  call.sizes_differ = true;
  call.tensor = std::move(own);
  call.pieces = std::move(pieces);
  return mesh().collective(std::move(call));
}

}  // namespace distag::spmd
