#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layout/picture.h"

namespace distag::layout {

// The content of a picture: the tensor and its nonempty boxes in ascending order, with the ranks that hold them.
struct PictureSubject {
  std::string title;
  Dims shape;
  bool has_sizes = false;  // if false, every block counts as one element
  bool is_everywhere = false;
  std::map<std::vector<int64_t>, std::pair<Box, std::vector<int32_t>>> boxes;  // by offset
  std::vector<std::string> notes;
  bool is_partial = false;
};

// The two dims that are drawn; a number past the last dim means none.
struct DrawnDims {
  size_t row;
  size_t column;
};

// "+ CPU [0, 1]"
std::string members_text(const PictureSubject& subject, const std::vector<int32_t>& members, const std::string& label);
// "2:4"
std::string range_text(int64_t offset, int64_t extent);
// Returns "0:2, 3:6"; "the whole" for a tensor without dims.
std::string box_text(const Box& box);

inline constexpr size_t kLongestTitle = 512;  // bytes
// At most `most` bytes of whole characters; "..." replaces the rest.
std::string shortened(const std::string& text, size_t most);
// The text may come from others and contain characters that XML forbids; these become question marks.
std::string escaped_xml(std::string_view text);

// A single SVG for light and dark pages. Along a dim that is not drawn, only the first parts are drawn.
std::string to_svg(const PictureSubject& subject, DrawnDims drawn, const std::string& label);
// A self-contained page: the SVG, the mesh as a grid, and the part that each member holds. It is well-formed XML, too.
std::string to_html(const PictureSubject& subject, const MeshShape& mesh, DrawnDims drawn, const std::string& label);

}  // namespace distag::layout
