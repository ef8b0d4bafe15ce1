#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "layout/spec.h"

namespace distag::layout {

// The numbers equal those of distag_picture_format.
enum class PictureFormat : int32_t { kText = 1, kJson = 4, kSvg = 5, kHtml = 6 };

struct PictureStyle {
  PictureFormat format = PictureFormat::kText;
  bool has_color = false;
  size_t width = 80;  // columns
  size_t row_dim = 0;
  size_t column_dim = 0;  // both 0: the first two dims
  std::string label = "CPU";
};

// A drawing of the members that hold each part of a tensor. Without a mesh the text must be HLO, which names its
// devices. Without a shape all parts have equal size, and the tensor has `rank` dims (0: as many as the text has).
// Throws INVALID_ARGUMENT.
std::string draw(const MeshShape* mesh, std::string_view spec, const std::optional<Dims>& shape, size_t rank,
                 const PictureStyle& style);

}  // namespace distag::layout
