// The form of DTensor: one item per axis of the mesh. "S(0), R, P(sum)"; also as Python prints it: "[Shard(dim=0)]".
#include "layout/spec_forms.h"

namespace distag::layout {
namespace {

constexpr int64_t kNoPlace = -1;

// An axis that cuts a dim, and its place among the axes of that dim if the text has one.
struct Cut {
  uint8_t axis;
  size_t dim;
  int64_t place = kNoPlace;
};

size_t read_dim(Scanner& scanner, size_t rank) {
  scanner.expect('(', "behind S");
  if (scanner.take_word("dim")) scanner.expect('=', "behind dim");
  const size_t place = scanner.place();
  int64_t dim = scanner.number("of a dim");
  const auto dims = static_cast<int64_t>(rank);
  if (dim < -dims || dim >= dims) {
    scanner.refuse(Status::kInvalidArgument, place, "dim {} of a tensor of {} dims", dim, rank);
  }
  scanner.expect(')', "behind the dim");
  return static_cast<size_t>(dim < 0 ? dim + dims : dim);
}

Cut read_cut(Scanner& scanner, uint8_t axis, size_t rank) {
  Cut cut{axis, read_dim(scanner, rank)};
  if (scanner.take('[')) {
    const size_t place = scanner.place();
    cut.place = scanner.number("of the place in the order");
    if (cut.place < 0) scanner.refuse(Status::kInvalidArgument, place, "places are numbered from 0");
    scanner.expect(']', "behind the place in the order");
  }
  return cut;
}

void read_reduction(Scanner& scanner) {
  if (!scanner.take('(') || scanner.take(')')) return;
  if (scanner.take_word("reduce_op")) scanner.expect('=', "behind reduce_op");
  const char quote = scanner.take('\'') ? '\'' : scanner.take('"') ? '"' : '\0';
  scanner.at_end();  // moves to the name itself
  const size_t place = scanner.place();
  const std::string_view name = scanner.word();
  if (name != "sum") {
    scanner.refuse(Status::kUnsupported, place, "reduction {}: a partial tensor is a sum", name.empty() ? "?" : name);
  }
  if (quote != '\0') scanner.expect(quote, "behind sum");
  scanner.expect(')', "behind sum");
}

// Orders the axes of each dim as in the mesh, or by the places that the text gives for all of them.
void order_cuts(const Scanner& scanner, const std::vector<Cut>& cuts, Spec& spec) {
  for (size_t dim = 0; dim < spec.rank(); ++dim) {
    std::vector<Cut> mine;
    for (const Cut& cut : cuts) {
      if (cut.dim == dim) mine.push_back(cut);
    }
    const auto placed = std::count_if(mine.begin(), mine.end(), [](const Cut& cut) { return cut.place != kNoPlace; });
    if (placed != 0) std::sort(mine.begin(), mine.end(), [](const Cut& a, const Cut& b) { return a.place < b.place; });
    for (size_t i = 0; i < mine.size(); ++i) {
      if (placed != 0 && mine[i].place != static_cast<int64_t>(i)) {
        scanner.refuse(Status::kInvalidArgument, 0,
                       "the places of the axes on dim {} are not 0 to {}: give all, each once", dim, mine.size() - 1);
      }
      spec.dim(dim).push_back(mine[i].axis);
    }
  }
}

// Whether all axes from `first` on have size 1: these may be omitted.
bool are_single(const MeshShape& mesh, size_t first) {
  for (size_t axis = first; axis < mesh.axis_count(); ++axis) {
    if (mesh.size(axis) != 1) return false;
  }
  return true;
}

}  // namespace

Spec read_placements(const MeshShape& mesh, Scanner& scanner, size_t rank, char close) {
  Spec spec(rank);
  std::vector<Cut> cuts;
  AxisSet partial = 0;
  size_t items = 0;
  do {
    if (close != '\0' && scanner.sees(close)) break;  // after a trailing comma
    scanner.at_end();                                 // moves to the item itself
    const size_t place = scanner.place();
    const std::string_view word = scanner.word();
    const auto axis = static_cast<uint8_t>(items++);
    if (items > mesh.axis_count()) continue;  // counted here, rejected below
    if (word == "S" || word == "Shard") {
      cuts.push_back(read_cut(scanner, axis, rank));
    } else if (word == "P" || word == "Partial" || word == "_Partial") {
      read_reduction(scanner);
      partial |= AxisSet{1} << axis;
    } else if (word != "R" && word != "Replicate") {
      scanner.refuse(Status::kInvalidArgument, place,
                     "no spec begins like this: write ('x', None), or S(0), R or P for each axis of the mesh");
    } else if (scanner.take('(')) {
      scanner.expect(')', "behind R(");
    }
  } while (items <= mesh.axis_count() && scanner.take(','));
  if (items > mesh.axis_count() || !are_single(mesh, items)) {
    scanner.refuse(Status::kInvalidArgument, scanner.place(), "{} items for mesh \"{}\" of {} axes: give each axis one",
                   items > mesh.axis_count() ? "too many" : std::to_string(items), mesh.name(), mesh.axis_count());
  }
  if (close != '\0') scanner.expect(close, "behind the last placement");
  order_cuts(scanner, cuts, spec);
  spec.set_partial(partial);
  return spec;
}

std::string print_placements(const MeshShape& mesh, const Spec& spec) {
  std::string text;
  for (uint8_t axis = 0; axis < mesh.axis_count(); ++axis) {
    if (axis > 0) text += ", ";
    const size_t dim = spec.dim_of(axis);
    if (spec.is_partial(axis)) {
      text += "P(sum)";
    } else if (dim == spec.rank()) {
      text += "R";
    } else {
      const Axes& axes = spec.dim(dim);
      text += fmt::format("S({})", dim);
      if (!std::is_sorted(axes.begin(), axes.end())) {
        text += fmt::format("[{}]", std::find(axes.begin(), axes.end(), axis) - axes.begin());
      }
    }
  }
  return text;
}

}  // namespace distag::layout
