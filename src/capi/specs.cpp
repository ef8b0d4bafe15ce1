// Specs on a mesh: boxes, forms, pictures. Nothing is sent.

#include "capi/mesh.h"
#include "capi/struct_check.h"
#include "capi/text_copy.h"
#include "layout/picture.h"
#include "layout/spec_text.h"

using namespace distag;
using namespace distag::capi;

namespace {

constexpr size_t kLongestLabel = 127;
constexpr uint32_t kLeastWidth = 20;
constexpr uint32_t kMostWidth = 10000;

Dims need_shape(const int64_t* shape, size_t ndim) {
  check_array(shape, ndim, "shape");
  return Dims(std::span(shape, ndim));
}

layout::PictureStyle need_style(const distag_picture_options* given) {
  const distag_picture_options options = read_struct(given, "distag_picture_options");
  layout::PictureStyle style;
  if (options.format != 0 && options.format != DISTAG_PICTURE_TEXT && options.format != DISTAG_PICTURE_JSON &&
      options.format != DISTAG_PICTURE_SVG && options.format != DISTAG_PICTURE_HTML) {
    refuse(Status::kUnsupported, "format is {}, not one of DISTAG_PICTURE_TEXT, _JSON, _SVG, _HTML", options.format);
  }
  if (options.format != 0) style.format = static_cast<layout::PictureFormat>(options.format);
  style.has_color = need_flag(options.color, "color");
  if (options.width != 0) style.width = options.width;
  if (style.width < kLeastWidth || style.width > kMostWidth) {
    refuse(Status::kInvalidArgument, "width is {}, not {} to {}", options.width, kLeastWidth, kMostWidth);
  }
  style.row_dim = options.row_dim;
  style.column_dim = options.column_dim;
  if (options.label != nullptr) style.label = need_text(options.label, "label");
  if (style.label.size() > kLongestLabel) {
    refuse(Status::kInvalidArgument, "label has {} bytes: at most {}", style.label.size(), kLongestLabel);
  }
  for (char& c : style.label) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
  return style;
}

}  // namespace

distag_status distag_mesh_copy_box(distag_mesh* mesh, const char* spec, const int64_t* shape, size_t ndim,
                                   int64_t position, int64_t* offset, int64_t* extent, int64_t* out_replica,
                                   distag_error* err) {
  clear(out_replica);
  return guard(__func__, err, [=] {
    const layout::MeshShape& members = need(mesh, "mesh").shared()->shape();
    const std::string text = need_text(spec, "spec");
    const Dims dims = need_shape(shape, ndim);
    check_array(offset, ndim, "offset");
    check_array(extent, ndim, "extent");
    need_pointer(out_replica, "out_replica");
    const layout::Spec parsed = layout::parse_spec(members, text, ndim);
    layout::check_shape(members, parsed, dims, sizeof(double));
    if (position < 0 || position >= members.count()) {
      refuse(Status::kInvalidArgument, "position {} of a mesh with {} members", position, members.count());
    }
    const layout::Box box = layout::box_of(members, parsed, dims, position);
    std::copy(box.offset.begin(), box.offset.end(), offset);
    std::copy(box.extent.begin(), box.extent.end(), extent);
    *out_replica = layout::replica_of(members, parsed, dims, position);
  });
}

distag_status distag_mesh_copy_spec(distag_mesh* mesh, const char* spec, size_t ndim, uint32_t form, char* buffer,
                                    size_t capacity, size_t* out_size, distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    const layout::MeshShape& members = need(mesh, "mesh").shared()->shape();
    const std::string text = need_text(spec, "spec");
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    need_enumerator(form, DISTAG_SPEC_SHARDY, "form", "DISTAG_SPEC_TUPLE, _PLACEMENTS, _HLO, _HLO_IOTA, _SHARDY");
    const auto wanted = form == 0 ? layout::SpecForm::kTuple : static_cast<layout::SpecForm>(form);
    copy_text(layout::print_spec(members, layout::parse_spec(members, text, ndim), wanted), buffer, capacity, out_size);
  });
}

distag_status distag_visualize_sharding(distag_mesh* mesh, const char* spec, const int64_t* shape, size_t ndim,
                                        const distag_picture_options* options, char* buffer, size_t capacity,
                                        size_t* out_size, distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    const distag_mesh* live = need_or_null(mesh, "mesh");
    const std::string text = need_text(spec, "spec");
    const layout::PictureStyle style = need_style(options);
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    std::optional<Dims> sizes;
    if (shape != nullptr) sizes = need_shape(shape, ndim);
    const layout::MeshShape* members = live == nullptr ? nullptr : &live->shared()->shape();
    copy_text(layout::draw(members, text, sizes, ndim, style), buffer, capacity, out_size);
  });
}
