#include "layout/picture.h"

#include "layout/picture_parts.h"
#include "layout/spec_forms.h"

namespace distag::layout {
namespace {

constexpr size_t kMostRows = 24;  // limit for a picture whose heights are proportional
constexpr std::array<int, 12> kColors = {153, 223, 157, 218, 229, 183, 159, 216, 194, 225, 187, 152};  // light colors

PictureSubject subject_of(const MeshShape& mesh, const Spec& spec, const std::optional<Dims>& shape) {
  PictureSubject subject;
  subject.has_sizes = shape.has_value();
  if (shape) {
    subject.shape = *shape;
  } else {
    for (size_t i = 0; i < spec.rank(); ++i) subject.shape.push_back(mesh.size_of(spec.dim(i)));
  }
  check_shape(mesh, spec, subject.shape, sizeof(double));
  for (int64_t position = 0; position < mesh.count(); ++position) {
    const Box box = box_of(mesh, spec, subject.shape, position);
    if (box.empty()) continue;
    auto& cell = subject.boxes[{box.offset.begin(), box.offset.end()}];
    cell.first = box;
    cell.second.push_back(mesh.ranks()[static_cast<size_t>(position)]);
  }
  for (auto& [offset, cell] : subject.boxes) std::sort(cell.second.begin(), cell.second.end());
  const AxisSet partial = mesh.used(spec.partial());
  subject.is_partial = partial != 0;
  if (partial != 0) {
    subject.notes.push_back("+: a part of the sum over " + names_of(mesh, axes_of(partial)));
  }
  if (subject.boxes.empty()) subject.notes.emplace_back("no elements");
  return subject;
}

std::string joined(const int64_t* begin, const int64_t* end) {
  std::string text;
  for (const int64_t* item = begin; item != end; ++item) text += (item == begin ? "" : ",") + std::to_string(*item);
  return text;
}

std::string to_json(const PictureSubject& subject) {
  std::string text = "{\"boxes\":[";
  bool is_first = true;
  for (const auto& [offset, cell] : subject.boxes) {
    const Box& box = cell.first;
    std::string members;
    for (int32_t rank : cell.second) members += (members.empty() ? "" : ",") + std::to_string(rank);
    if (subject.is_everywhere) members.clear();
    text += fmt::format("{}{{\"offset\":[{}],\"extent\":[{}],\"members\":[{}]}}",
                        std::exchange(is_first, false) ? "" : ",", joined(box.offset.begin(), box.offset.end()),
                        joined(box.extent.begin(), box.extent.end()), members);
  }
  return text + "]}";
}

// ---- text -----------------------------------------------------------------------------------------------------------

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

// At most `width` characters; "..." replaces the rest.
std::string cut(const std::string& text, size_t width) {
  if (width_of(text) <= width) return text;
  const size_t kept = width > 3 ? width - 3 : 0;
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if (starts_character(text[end]) && seen++ == kept) break;
  }
  return text.substr(0, end) + std::string(std::min<size_t>(width, 3), '.');
}

std::string centred(const std::string& text, size_t width) {
  const std::string shown = cut(text, width);
  const size_t blanks = width - width_of(shown);
  return std::string(blanks / 2, ' ') + shown + std::string(blanks - blanks / 2, ' ');
}

std::string repeated(std::string_view text, size_t times) {
  std::string result;
  for (size_t i = 0; i < times; ++i) result += text;
  return result;
}

// Offset and extent of the blocks of a drawn dim.
using Blocks = std::map<int64_t, int64_t>;

// The picture as a grid: rows and columns of blocks, and the text of each cell.
struct Grid {
  Blocks rows;
  Blocks columns;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::string>> cells;  // by the offsets of row and column
};

DrawnDims drawn_dims(size_t rank, const PictureStyle& style) {
  if (style.row_dim == 0 && style.column_dim == 0) return rank == 1 ? DrawnDims{kMaxRank, 0} : DrawnDims{0, 1};
  if (style.row_dim == style.column_dim || std::max(style.row_dim, style.column_dim) >= rank) {
    fail(Status::kInvalidArgument, "rows are dim {} and columns dim {}: give two dims of the {} that there are",
         style.row_dim, style.column_dim, rank);
  }
  return {style.row_dim, style.column_dim};
}

Grid grid_of(const PictureSubject& subject, DrawnDims drawn, const std::string& label) {
  Grid grid;
  const size_t rank = subject.shape.size();
  std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>> members;
  for (const auto& [offset, cell] : subject.boxes) {
    const Box& box = cell.first;
    const int64_t row = drawn.row < rank ? box.offset[drawn.row] : 0;
    const int64_t column = drawn.column < rank ? box.offset[drawn.column] : 0;
    grid.rows[row] = drawn.row < rank ? box.extent[drawn.row] : 1;
    grid.columns[column] = drawn.column < rank ? box.extent[drawn.column] : 1;
    auto& holders = members[{row, column}];
    holders.insert(holders.end(), cell.second.begin(), cell.second.end());
  }
  for (auto& [place, holders] : members) {
    std::sort(holders.begin(), holders.end());
    std::vector<std::string>& lines = grid.cells[place];
    lines.push_back(members_text(subject, holders, label));
    if (!subject.has_sizes || rank == 0) continue;
    std::string ranges = drawn.row < rank ? range_text(place.first, grid.rows[place.first]) : "";
    if (drawn.column < rank) {
      ranges += (ranges.empty() ? "" : ", ") + range_text(place.second, grid.columns[place.second]);
    }
    lines.push_back(ranges);
  }
  return grid;
}

// Sizes proportional to the extents, each at least as large as its text, if `room` permits; otherwise the size of the
// text or less.
std::map<int64_t, size_t> sizes_in_proportion(const Blocks& blocks, const std::map<int64_t, size_t>& texts,
                                              size_t room) {
  double unit = 0;
  double total = 0;
  for (const auto& [offset, extent] : blocks) {
    unit = std::max(unit, static_cast<double>(texts.at(offset)) / static_cast<double>(extent));
    total += static_cast<double>(extent);
  }
  unit = std::min(unit, static_cast<double>(room) / total);
  std::map<int64_t, size_t> sizes;
  size_t sum = 0;
  for (const auto& [offset, extent] : blocks) {
    sizes[offset] = std::max(texts.at(offset), static_cast<size_t>(unit * static_cast<double>(extent) + 0.5));
    sum += sizes[offset];
  }
  for (auto size = sizes.begin(); sum > room && size != sizes.end(); ++size) {
    const size_t spare = std::min(size->second - texts.at(size->first), sum - room);
    size->second -= spare;
    sum -= spare;
  }
  if (sum <= room) return sizes;
  const size_t share = std::max<size_t>(room / sizes.size(), 1);
  for (auto& [offset, size] : sizes) size = std::min(size, share);
  return sizes;
}

// Removes columns that do not fit with one character each. Returns the number of all columns if it removed any.
std::optional<size_t> leave_out(Grid& grid, size_t width) {
  const size_t most = std::max<size_t>(width > 1 ? (width - 1) / 2 : 1, 1);
  const size_t all = grid.columns.size();
  if (all <= most) return std::nullopt;
  const int64_t end = std::next(grid.columns.begin(), static_cast<std::ptrdiff_t>(most))->first;
  grid.columns.erase(grid.columns.lower_bound(end), grid.columns.end());
  std::erase_if(grid.cells, [end](const auto& cell) { return cell.first.second >= end; });
  return all;
}

struct Extents {
  std::map<int64_t, size_t> rows;
  std::map<int64_t, size_t> columns;
};

Extents extents_of(const Grid& grid, size_t width) {
  std::map<int64_t, size_t> heights;
  std::map<int64_t, size_t> widths;
  for (const auto& [place, lines] : grid.cells) {
    heights[place.first] = std::max(heights[place.first], lines.size());
    for (const std::string& line : lines) {
      widths[place.second] = std::max(widths[place.second], width_of(line) + 2);
    }
  }
  const size_t borders = widths.size() + 1;
  Extents extents;
  extents.columns = sizes_in_proportion(grid.columns, widths, width > borders ? width - borders : 1);
  size_t least = 0;
  for (const auto& [offset, height] : heights) least += height;
  extents.rows = sizes_in_proportion(grid.rows, heights, std::max(least, kMostRows));
  return extents;
}

std::string border(const Extents& extents, std::string_view left, std::string_view middle, std::string_view right) {
  std::string line(left);
  bool is_first = true;
  for (const auto& [offset, width] : extents.columns) {
    if (!std::exchange(is_first, false)) line += middle;
    line += repeated("─", width);
  }
  return line + std::string(right) + "\n";
}

std::string paint(const std::string& text, size_t cell, bool has_color) {
  if (!has_color) return text;
  return fmt::format("\x1b[38;5;16;48;5;{}m{}\x1b[0m", kColors[cell % kColors.size()], text);
}

std::string row_text(const Grid& grid, const Extents& extents, int64_t row, size_t& number, bool has_color) {
  std::string text;
  const size_t height = extents.rows.at(row);
  for (size_t line = 0; line < height; ++line) {
    text += "│";
    size_t cell = number;
    for (const auto& [column, width] : extents.columns) {
      const auto found = grid.cells.find({row, column});
      std::string shown;
      if (found != grid.cells.end()) {
        const size_t first = (height - std::min(height, found->second.size())) / 2;
        if (line >= first && line - first < found->second.size()) shown = found->second[line - first];
      }
      text += paint(centred(shown, width), cell++, has_color) + "│";
    }
    text += "\n";
  }
  number += extents.columns.size();
  return text;
}

std::string to_text(const PictureSubject& subject, const PictureStyle& style) {
  const DrawnDims drawn = drawn_dims(subject.shape.size(), style);
  std::string text = cut(subject.title, style.width) + "\n";
  if (!subject.boxes.empty()) {
    Grid grid = grid_of(subject, drawn, style.label);
    const std::optional<size_t> all_columns = leave_out(grid, style.width);
    const Extents extents = extents_of(grid, style.width);
    size_t number = 0;
    bool is_first = true;
    for (const auto& [row, extent] : grid.rows) {
      text += std::exchange(is_first, false) ? border(extents, "┌", "┬", "┐") : border(extents, "├", "┼", "┤");
      text += row_text(grid, extents, row, number, style.has_color);
    }
    text += border(extents, "└", "┴", "┘");
    if (all_columns) {
      text += cut(fmt::format("{} of {} columns", grid.columns.size(), *all_columns), style.width) + "\n";
    }
  }
  for (size_t i = 0; i < subject.shape.size(); ++i) {
    if (i == drawn.row || i == drawn.column) continue;
    Blocks blocks;
    for (const auto& [offset, cell] : subject.boxes) blocks[cell.first.offset[i]] = cell.first.extent[i];
    const std::string lie = blocks.size() < 2 ? "whole" : fmt::format("in {} blocks", blocks.size());
    text += cut(fmt::format("dim {}: {}", i, lie), style.width) + "\n";
  }
  for (const std::string& note : subject.notes) text += cut(note, style.width) + "\n";
  return text;
}

// ---- the dims that a text has ---------------------------------------------------------------------------------------

// Counts the items between the brackets at the beginning of the text, in the outermost list only.
size_t count_items(std::string_view text) {
  size_t depth = 0;
  size_t items = 0;
  bool is_in_item = false;
  for (const char c : text) {
    const bool opens = c == '(' || c == '[' || c == '{';
    const bool closes = c == ')' || c == ']' || c == '}';
    if (closes && --depth == 0) break;
    if (depth == 1 && c == ',') is_in_item = false;
    if (depth >= 1 && !closes && c != ' ' && !(depth == 1 && c == ',') && !std::exchange(is_in_item, true)) ++items;
    if (opens) ++depth;
  }
  return items;
}

// The last dim that "S(d)" names, plus one.
size_t count_placed_dims(std::string_view text) {
  size_t dims = 0;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] != 'S' || text[i + 1] != '(') continue;
    Scanner scanner(text.substr(i + 1));
    scanner.take('(');
    const int64_t dim = scanner.number("of a dim");
    dims = std::max(dims, static_cast<size_t>(std::min<int64_t>(dim < 0 ? -dim : dim + 1, kMaxRank)));
  }
  return dims;
}

size_t rank_of(std::string_view text) {
  Scanner scanner(text);
  if (scanner.sees('(') || scanner.sees('[')) return count_items(text);
  if (scanner.sees('{')) return read_hlo_alone(text).spec.rank();
  if (scanner.take_word("sharding")) return count_items(text.substr(std::min(text.find('['), text.size())));
  return count_placed_dims(text);
}

}  // namespace

std::string members_text(const PictureSubject& subject, const std::vector<int32_t>& members, const std::string& label) {
  std::string text = subject.is_partial ? "+ " : "";
  if (!label.empty()) text += label + " ";
  if (subject.is_everywhere) return text + "(all)";
  if (members.size() == 1) return text + std::to_string(members.front());
  std::string list;
  for (int32_t rank : members) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  return text + "[" + list + "]";
}

std::string range_text(int64_t offset, int64_t extent) { return fmt::format("{}:{}", offset, offset + extent); }

std::string draw(const MeshShape* mesh, std::string_view spec, const std::optional<Dims>& shape, size_t rank,
                 const PictureStyle& style) {
  PictureSubject subject;
  if (rank > kMaxRank) fail(Status::kInvalidArgument, "{} dims are too many: at most {}", rank, kMaxRank);
  MeshShape shown;
  if (mesh == nullptr) {
    const NamedDevices devices = read_hlo_alone(spec);
    const size_t own = devices.spec.rank();
    const size_t dims = shape ? shape->size() : rank != 0 || devices.is_of_any_rank ? rank : own;
    if (dims != own && !devices.is_of_any_rank) {
      fail(Status::kInvalidArgument, "a spec of {} dims for a tensor of {} dims", own, dims);
    }
    subject = subject_of(devices.mesh, devices.is_of_any_rank ? Spec(dims) : devices.spec, shape);
    subject.is_everywhere = devices.is_everywhere;
    subject.title = spec;
    shown = devices.mesh;
  } else {
    const size_t dims = shape ? shape->size() : rank != 0 ? rank : rank_of(spec);
    const Spec parsed = parse_spec(*mesh, spec, dims);
    subject = subject_of(*mesh, parsed, shape);
    subject.title = print_spec(*mesh, parsed, SpecForm::kHlo);
    shown = *mesh;
  }
  switch (style.format) {
    case PictureFormat::kJson:
      return to_json(subject);
    case PictureFormat::kSvg:
      return to_svg(subject, drawn_dims(subject.shape.size(), style), style.label);
    case PictureFormat::kHtml:
      return to_html(subject, shown, drawn_dims(subject.shape.size(), style), style.label);
    case PictureFormat::kText:
      break;
  }
  return to_text(subject, style);
}

}  // namespace distag::layout
