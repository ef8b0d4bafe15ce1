// Makes a mesh and reads a spec on it. Input: the axes of the mesh and their sizes, the dims of the tensor, then the
// text. A spec that is read comes back equal from each form that can say it, and its pictures can be drawn.
#include "base/error.h"
#include "fuzz/input.h"
#include "fuzz/refusal.h"
#include "layout/picture.h"
#include "layout/spec_text.h"

namespace {

using namespace distag;
using namespace distag::layout;
using fuzz::check;
using fuzz::is_taken;

constexpr SpecForm kForms[] = {SpecForm::kTuple, SpecForm::kPlacements, SpecForm::kHlo, SpecForm::kHloIota,
                               SpecForm::kShardy};
constexpr PictureFormat kFormats[] = {PictureFormat::kText, PictureFormat::kJson, PictureFormat::kSvg,
                                      PictureFormat::kHtml};
constexpr size_t kMostMembers = 64;

MeshRequest read_request(fuzz::Input& input) {
  MeshRequest request;
  const uint8_t kinds = input.byte();
  for (const int64_t size : input.integers(kMaxAxes)) request.shape.push_back(size);
  size_t count = input.below(kMostMembers + 1);
  if (count == 0) {  // as many as fit
    count = 1;
    for (const int64_t size : request.shape)
      count = std::min(count * static_cast<size_t>(std::max<int64_t>(size, 1)), kMostMembers);
  }
  for (size_t i = 0; i < count; ++i) request.ranks.push_back(static_cast<int32_t>((kinds & 1) != 0 ? count - i : i));
  if ((kinds & 2) != 0) request.axis_names = {"x", "y", "z"};
  if ((kinds & 4) != 0) request.name = input.line();
  if ((kinds & 8) != 0) {
    for (const int64_t size : input.integers(kMaxAxes)) request.outer_shape.push_back(size);
    for (size_t i = 0; i < count; ++i) request.granules.push_back(static_cast<int64_t>(i % (1 + input.below(4))));
  }
  return request;
}

void check_forms(const MeshShape& mesh, const Spec& spec) {
  for (const SpecForm form : kForms) {
    std::string text;
    if (!is_taken([&] { text = print_spec(mesh, spec, form); }, Status::kUnsupported)) continue;
    const Spec back = parse_spec(mesh, text, spec.rank());
    const bool is_hlo = form == SpecForm::kHlo || form == SpecForm::kHloIota;
    check(back == (is_hlo ? without_idle_axes(mesh, spec) : spec));
  }
}

// The boxes of a tensor, those that repeat others aside, have each of its elements once.
void check_boxes(const MeshShape& mesh, const Spec& spec, const Dims& shape) {
  int64_t count = 0;
  int64_t parts = mesh.size_of(axes_of(spec.partial()));
  if (!is_taken([&] { check_shape(mesh, spec, shape, sizeof(double)); }, Status::kUnsupported)) return;
  for (int64_t position = 0; position < mesh.count(); ++position) {
    const Box box = box_of(mesh, spec, shape, position);
    if (!box.empty() && replica_of(mesh, spec, shape, position) == 0) count += box.count();
  }
  check(count == parts * element_count(shape));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const MeshRequest request = read_request(input);
  const size_t rank = input.below(kMaxRank + 2);
  PictureStyle style;
  style.format = kFormats[input.below(std::size(kFormats))];
  style.width = 20 + input.below(80);
  style.column_dim = input.below(3);
  Dims shape;
  for (size_t i = 0; i < std::min(rank, kMaxRank); ++i) shape.push_back(input.integer());
  const std::string text = input.rest();
  std::optional<MeshShape> mesh;
  is_taken([&] { draw(nullptr, text, std::nullopt, rank, style); }, Status::kUnsupported);
  is_taken([&] { draw(nullptr, text, shape, rank, style); }, Status::kUnsupported);
  if (!is_taken([&] { mesh = MeshShape::make(request); }, Status::kUnsupported)) return 0;
  Spec spec;
  is_taken([&] { parse_axes(*mesh, text); }, Status::kUnsupported);
  is_taken([&] { draw(&*mesh, text, std::nullopt, 0, style); }, Status::kUnsupported);
  is_taken([&] { draw(&*mesh, text, shape, rank, style); }, Status::kUnsupported);
  if (!is_taken([&] { spec = parse_spec(*mesh, text, rank); }, Status::kUnsupported)) return 0;
  check_forms(*mesh, spec);
  if (spec.rank() == shape.size()) check_boxes(*mesh, spec, shape);
  return 0;
}
