// Pictures of shardings as a page: the SVG, the mesh as a grid, and a table of the members with what they hold.

#include <algorithm>
#include <map>

#include "base/error.h"
#include "layout/picture_parts.h"

namespace distag::layout {
namespace {

// Texts have a contrast of at least 7 to their background, on light and on dark pages.
constexpr std::string_view kPageStyle =
    "<style>"
    "body{background:#ffffff;color:#111111;font:14px sans-serif;margin:2em}"
    "table{border-collapse:collapse;margin:1em 0}caption{text-align:left}"
    "td,th{border:1px solid #777777;padding:0.2em 0.6em;text-align:left}svg{max-width:100%;height:auto}"
    "@media (prefers-color-scheme:dark){body{background:#111111;color:#ffffff}}"
    "</style>\n";

std::string cell(std::string_view tag, const std::string& text) {
  return fmt::format("<{0}>{1}</{0}>", tag, escaped_xml(text));
}

// The part of each member; members without an entry hold no elements.
std::map<int32_t, const Box*> boxes_by_rank(const PictureSubject& subject) {
  std::map<int32_t, const Box*> boxes;
  for (const auto& [offset, part] : subject.boxes) {
    for (const int32_t rank : part.second) boxes[rank] = &part.first;
  }
  return boxes;
}

int64_t count_elements(const Box& box) {
  int64_t count = 1;
  for (const int64_t extent : box.extent) count *= extent;
  return count;
}

// Makes a table for each combination of coordinates on all axes except the last two, which are rows and columns.
std::string mesh_grid(const MeshShape& mesh) {
  const size_t axes = mesh.axis_count();
  const int64_t columns = axes == 0 ? 1 : std::max<int64_t>(mesh.size(axes - 1), 1);
  const int64_t rows = axes < 2 ? 1 : std::max<int64_t>(mesh.size(axes - 2), 1);
  std::string html;
  for (int64_t begin = 0; begin < mesh.count(); begin += rows * columns) {
    std::string caption;
    for (size_t axis = 0; axis < axes; ++axis) {
      const bool is_fixed = axis + 2 < axes;
      const std::string place =
          is_fixed ? fmt::format("{} is {}", mesh.axis_name(axis), mesh.coordinate(begin, axis))
                   : fmt::format("{} {}", axis + 1 == axes ? "columns:" : "rows:", mesh.axis_name(axis));
      caption += (caption.empty() ? "" : ", ") + place;
    }
    html += "<table class=\"mesh\">" + cell("caption", caption) + "<tbody>\n";
    for (int64_t row = 0; row < rows; ++row) {
      html += "<tr>";
      for (int64_t column = 0; column < columns; ++column) {
        const auto position = static_cast<size_t>(begin + row * columns + column);
        html += cell("td", std::to_string(mesh.ranks()[position]));
      }
      html += "</tr>\n";
    }
    html += "</tbody></table>\n";
  }
  return html;
}

std::string members_table(const PictureSubject& subject, const MeshShape& mesh) {
  const std::map<int32_t, const Box*> boxes = boxes_by_rank(subject);
  std::string html = "<table class=\"members\"><thead><tr><th>member</th>";
  for (const std::string& axis : mesh.axis_names()) html += cell("th", axis);
  html += subject.has_sizes ? "<th>elements</th><th>count</th></tr></thead><tbody>\n"
                            : "<th>blocks</th><th>count</th></tr></thead><tbody>\n";
  for (int64_t position = 0; position < mesh.count(); ++position) {
    const int32_t rank = mesh.ranks()[static_cast<size_t>(position)];
    html += "<tr>" + cell("th", std::to_string(rank));
    for (size_t axis = 0; axis < mesh.axis_count(); ++axis) {
      html += cell("td", std::to_string(mesh.coordinate(position, axis)));
    }
    const auto box = boxes.find(rank);
    const bool holds_none = box == boxes.end();
    html += cell("td", holds_none ? "none" : box_text(*box->second)) +
            cell("td", holds_none ? "0" : std::to_string(count_elements(*box->second))) + "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

}  // namespace

std::string to_html(const PictureSubject& subject, const MeshShape& mesh, DrawnDims drawn, const std::string& label) {
  const std::string title = escaped_xml(shortened(subject.title, kLongestTitle));
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
      "<title>{0}</title>\n{1}</head><body>\n<h1>{0}</h1>\n",
      title, kPageStyle);
  html += to_svg(subject, drawn, label);
  if (subject.is_everywhere) return html + "<p>Each member holds all of it.</p>\n</body></html>\n";
  html += "<h2>Mesh</h2>\n" + mesh_grid(mesh) + "<h2>Members</h2>\n" + members_table(subject, mesh);
  return html + "</body></html>\n";
}

}  // namespace distag::layout
