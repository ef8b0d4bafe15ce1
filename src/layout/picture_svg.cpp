// Pictures of shardings as SVG: places in proportion to the blocks, and a table of all parts.

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "layout/picture_parts.h"

namespace distag::layout {
namespace {

constexpr size_t kMostParts = 1024;     // parts drawn and listed, as long as their texts fit
constexpr size_t kMostBytes = 900'000;  // limit for these texts with their tags
constexpr size_t kTagBytes = 400;       // for one part, at most
constexpr size_t kMostMembers = 16;     // members of a part that are listed
constexpr size_t kMostTableRows = 32;   // rows beside the picture; the description has all parts
constexpr double kWidth = 480;
constexpr double kHeight = 360;
constexpr double kLineHeight = 18;
constexpr double kDigitWidth = 7.5;  // width in the monospaced font below
constexpr double kMargin = 10;
constexpr size_t kColorCount = 6;

// Texts have a contrast of at least 7 to their background, on light and on dark pages.
constexpr std::string_view kStyle =
    "<style>"
    ".distag-page{fill:#ffffff}.distag-text{fill:#111111;font:12px monospace}.distag-line{stroke:#111111}"
    ".distag-0{fill:#cfe2ff}.distag-1{fill:#ffe0b8}.distag-2{fill:#d4edc9}"
    ".distag-3{fill:#f4d3e4}.distag-4{fill:#e4dbf7}.distag-5{fill:#f3ecb4}"
    "@media (prefers-color-scheme:dark){"
    ".distag-page{fill:#111111}.distag-text{fill:#ffffff}.distag-line{stroke:#ffffff}"
    ".distag-0{fill:#173a69}.distag-1{fill:#5c3a0a}.distag-2{fill:#1f4a20}"
    ".distag-3{fill:#5a2341}.distag-4{fill:#3f2d66}.distag-5{fill:#4b4310}}"
    "</style>\n";

std::string holders_text(const PictureSubject& subject, const std::vector<int32_t>& members, const std::string& label) {
  if (subject.is_everywhere || members.size() <= kMostMembers) return members_text(subject, members, label);
  const std::vector<int32_t> first(members.begin(), members.begin() + kMostMembers);
  return members_text(subject, first, label) + fmt::format(" and {} more", members.size() - kMostMembers);
}

// The position of a dim on the page; blocks are proportional.
struct Scale {
  double begin = 0;
  double unit = 1;  // length of one element
  double at(int64_t element) const { return begin + unit * static_cast<double>(element); }
};

Scale scale_of(const PictureSubject& subject, size_t dim, double begin, double room) {
  const int64_t size = dim < subject.shape.size() ? subject.shape[dim] : 1;
  return {begin, room / static_cast<double>(std::max<int64_t>(size, 1))};
}

struct Place {
  double x, y, width, height;
};

Place place_of(const Box& box, DrawnDims drawn, const Scale& across, const Scale& down) {
  const auto begin = [&](size_t dim) { return dim < box.offset.size() ? box.offset[dim] : 0; };
  const auto extent = [&](size_t dim) { return dim < box.offset.size() ? box.extent[dim] : 1; };
  const double x = across.at(begin(drawn.column));
  const double y = down.at(begin(drawn.row));
  return {x, y, across.at(begin(drawn.column) + extent(drawn.column)) - x,
          down.at(begin(drawn.row) + extent(drawn.row)) - y};
}

std::string text_at(double x, double y, const std::string& text, const char* anchor) {
  return fmt::format("<text class=\"distag-text\" x=\"{:.2f}\" y=\"{:.2f}\"{}>{}</text>\n", x, y, anchor,
                     escaped_xml(text));
}

class SvgWriter {
 public:
  SvgWriter(const PictureSubject& subject, DrawnDims drawn, const std::string& label)
      : subject_(subject), drawn_(drawn), rank_(subject.shape.size()) {
    size_t bytes = 0;
    for (const auto& [offset, cell] : subject.boxes) {
      Row row{&cell.first, box_text(cell.first), holders_text(subject, cell.second, label)};
      bytes += kTagBytes + 3 * (row.elements.size() + escaped_xml(row.members).size());
      if (rows_.size() == kMostParts || bytes > kMostBytes) break;
      rows_.push_back(std::move(row));
    }
  }

  std::string write() {
    const double top = 2 * kMargin + kLineHeight;
    const double height = rank_ == 0 || drawn_.row >= rank_ ? kHeight / 4 : kHeight;
    const size_t listed = std::min(rows_.size(), kMostTableRows);
    const double table_height = static_cast<double>(listed + 2) * kLineHeight;
    const double notes_top = top + std::max(height, table_height) + kMargin;
    const std::vector<std::string> notes = notes_text();
    const double bottom = notes_top + static_cast<double>(notes.size()) * kLineHeight + kMargin;
    const double table_x = kWidth + 3 * kMargin;
    const double right = std::max(table_x + table_width(), kWidth + 3 * kMargin) + kMargin;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n<title>{2}</title>\n<desc>{3}</desc>\n{4}"
        "<rect class=\"distag-page\" width=\"100%\" height=\"100%\"/>\n",
        right, bottom, escaped_xml(title()), description(), kStyle);
    svg +=
        text_at(kMargin, kMargin + kLineHeight, shortened(title(), static_cast<size_t>(right / kDigitWidth) - 3), "");
    svg += parts(top, height);
    svg += table(table_x, top, listed);
    double y = notes_top + kLineHeight / 2;
    for (const std::string& note : notes) svg += text_at(kMargin, y, note, ""), y += kLineHeight;
    return svg + "</svg>\n";
  }

 private:
  struct Row {
    const Box* box;
    std::string elements;
    std::string members;
  };

  std::string title() const { return shortened(subject_.title, kLongestTitle); }

  // The content of the picture as text, for screen readers and programs: a line for each part.
  std::string description() const {
    std::string text = subject_.has_sizes ? "elements: members\n" : "blocks: members\n";
    for (const Row& row : rows_) text += row.elements + ": " + row.members + "\n";
    if (rows_.empty()) text += "no elements\n";
    if (rows_.size() < subject_.boxes.size()) text += left_out() + "\n";
    return escaped_xml(text);
  }

  std::string left_out() const { return fmt::format("{} of {} parts", rows_.size(), subject_.boxes.size()); }

  std::vector<std::string> notes_text() const {
    std::vector<std::string> notes;
    for (size_t i = 0; i < rank_; ++i) {
      if (i != drawn_.row && i != drawn_.column) notes.push_back(fmt::format("dim {}: see the table", i));
    }
    if (rows_.size() < subject_.boxes.size()) notes.push_back(left_out());
    for (const std::string& note : subject_.notes) notes.push_back(shortened(note, kLongestTitle));
    return notes;
  }

  double table_width() const { return static_cast<double>(first_column() + second_column() + 2) * kDigitWidth; }
  size_t first_column() const {
    size_t width = 8;
    for (const Row& row : rows_) width = std::max(width, row.elements.size());
    return width;
  }
  size_t second_column() const {
    size_t width = 7;
    for (const Row& row : rows_) width = std::max(width, row.members.size());
    return width;
  }

  std::string parts(double top, double height) const {
    const Scale across = scale_of(subject_, drawn_.column, kMargin, kWidth);
    const Scale down = scale_of(subject_, drawn_.row, top, height);
    std::string svg;
    size_t number = 0;
    for (const Row& row : rows_) {
      const Place at = place_of(*row.box, drawn_, across, down);
      const bool is_in_front = is_first_layer(*row.box);
      if (!is_in_front) continue;
      svg += fmt::format(
          "<g><title>{}: {}</title><rect class=\"distag-{} distag-line\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" "
          "height=\"{:.2f}\"/>\n",
          row.elements, escaped_xml(row.members), number++ % kColorCount, at.x, at.y, at.width, at.height);
      const double x = at.x + at.width / 2;
      const double y = at.y + at.height / 2 + 4;
      const char* const anchor = " text-anchor=\"middle\"";
      const auto fits = [&](const std::string& text, double lines) {
        return static_cast<double>(text.size() + 1) * kDigitWidth <= at.width && lines * kLineHeight <= at.height;
      };
      if (fits(row.members, 2) && fits(row.elements, 2) && subject_.has_sizes && rank_ != 0) {
        svg += text_at(x, y - kLineHeight / 2, row.members, anchor) +
               text_at(x, y + kLineHeight / 2, row.elements, anchor);
      } else if (fits(row.members, 1)) {
        svg += text_at(x, y, row.members, anchor);
      }
      svg += "</g>\n";
    }
    return svg;
  }

  // Only the first block is drawn along each dim that is not drawn itself.
  bool is_first_layer(const Box& box) const {
    for (size_t i = 0; i < rank_; ++i) {
      if (i != drawn_.row && i != drawn_.column && box.offset[i] != 0) return false;
    }
    return true;
  }

  std::string table(double x, double top, size_t listed) const {
    const double second = x + static_cast<double>(first_column() + 2) * kDigitWidth;
    double y = top + kLineHeight;
    std::string svg = text_at(x, y, subject_.has_sizes ? "elements" : "blocks", "") + text_at(second, y, "members", "");
    for (size_t i = 0; i < listed; ++i) {
      y += kLineHeight;
      svg += text_at(x, y, rows_[i].elements, "") + text_at(second, y, rows_[i].members, "");
    }
    if (listed < subject_.boxes.size()) {
      svg += text_at(x, y + kLineHeight, fmt::format("and {} more", subject_.boxes.size() - listed), "");
    }
    return svg;
  }

  const PictureSubject& subject_;
  const DrawnDims drawn_;
  const size_t rank_;
  std::vector<Row> rows_;
};

}  // namespace

std::string escaped_xml(std::string_view text) {
  std::string xml;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const std::string_view next = text.substr(i, 3);
    if (next == "\xEF\xBF\xBE" || next == "\xEF\xBF\xBF") {
      xml += '?';
      i += 2;
    } else if (c == '&') {
      xml += "&amp;";
    } else if (c == '<') {
      xml += "&lt;";
    } else if (c == '>') {
      xml += "&gt;";
    } else if (c == '"') {
      xml += "&quot;";
    } else {
      xml += (byte < 0x20 && c != '\n') || byte == 0x7f ? '?' : c;
    }
  }
  return xml;
}

std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string box_text(const Box& box) {
  std::string text;
  for (size_t i = 0; i < box.offset.size(); ++i) {
    text += (text.empty() ? "" : ", ") + range_text(box.offset[i], box.extent[i]);
  }
  return text.empty() ? "the whole" : text;
}

std::string to_svg(const PictureSubject& subject, DrawnDims drawn, const std::string& label) {
  return SvgWriter(subject, drawn, label).write();
}

}  // namespace distag::layout
