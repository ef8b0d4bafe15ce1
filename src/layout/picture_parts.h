#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layout/picture.h"

namespace distag::layout {

// All that a picture shows: the tensor, and the boxes that are not empty, ascending, with the ranks that hold them.
struct PictureSubject {
  std::string title;
  Dims shape;
  bool has_sizes = false;  // otherwise every block counts as one element
  bool is_everywhere = false;
  std::map<std::vector<int64_t>, std::pair<Box, std::vector<int32_t>>> boxes;  // by offset
  std::vector<std::string> notes;
  bool is_partial = false;
};

// The two dims that are drawn; a number past the last dim: none.
struct DrawnDims {
  size_t row;
  size_t column;
};

// "+ CPU [0, 1]"
std::string members_text(const PictureSubject& subject, const std::vector<int32_t>& members, const std::string& label);
// "2:4"
std::string range_text(int64_t offset, int64_t extent);
// "0:2, 3:6"; of a tensor without dims "the whole".
std::string box_text(const Box& box);

inline constexpr size_t kLongestTitle = 512;  // bytes
// At most that many bytes, whole characters, with "..." for the rest.
std::string shortened(const std::string& text, size_t most);
// Text of others may hold what no XML may: that becomes a question mark.
std::string escaped_xml(std::string_view text);

// One SVG for light and dark pages. A part that is cut along a dim that is not drawn lies in the place of the others.
std::string to_svg(const PictureSubject& subject, DrawnDims drawn, const std::string& label);
// A page that needs nothing else: the SVG, the mesh as a grid, and what each member holds. Well-formed XML, too.
std::string to_html(const PictureSubject& subject, const MeshShape& mesh, DrawnDims drawn, const std::string& label);

}  // namespace distag::layout
