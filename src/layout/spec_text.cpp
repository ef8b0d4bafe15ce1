#include "layout/spec_text.h"

#include "layout/spec_forms.h"

namespace distag::layout {
namespace {

// Finds an axis by a quoted name, or by a plain name or number.
std::optional<size_t> find_named(const MeshShape& mesh, std::string_view name, bool is_quoted) {
  const bool is_number = !is_quoted && !name.empty() && name[0] >= '0' && name[0] <= '9';
  if (!is_number) return mesh.find_axis(name);
  size_t number = 0;
  for (char c : name) {
    if (c < '0' || c > '9' || number > kMaxAxes) return std::nullopt;
    number = number * 10 + static_cast<size_t>(c - '0');
  }
  if (number >= mesh.axis_count()) return std::nullopt;
  return number;
}

char taken_quote(Scanner& scanner) {
  if (scanner.take('\'')) return '\'';
  return scanner.take('"') ? '"' : '\0';
}

// The axes of "(x, y)" behind its opening bracket.
Axes read_axis_list(const MeshShape& mesh, Scanner& scanner, AxisSet& taken) {
  Axes axes;
  while (!scanner.take(')')) {
    if (!axes.empty()) {
      scanner.expect(',', "between two axes");
      if (scanner.take(')')) break;
    }
    if (scanner.sees('(')) {
      scanner.refuse(Status::kInvalidArgument, scanner.place(),
                     "an item is None, an axis or one list of axes: lists "
                     "are not nested deeper");
    }
    axes.push_back(read_axis(mesh, scanner, taken));
  }
  return axes;
}

Axes read_item(const MeshShape& mesh, Scanner& scanner, AxisSet& taken) {
  const size_t place = scanner.place();
  if (scanner.take_word("None")) return {};
  if (!scanner.take('(')) return {read_axis(mesh, scanner, taken)};
  Axes axes = read_axis_list(mesh, scanner, taken);
  if (axes.empty()) scanner.refuse(Status::kInvalidArgument, place, "a list of no axes: write None");
  return axes;
}

std::string quoted(const MeshShape& mesh, const Axes& axes) {
  std::string text;
  for (uint8_t axis : axes) text += fmt::format("{}'{}'", text.empty() ? "" : ", ", mesh.axis_name(axis));
  return text;
}

}  // namespace

uint8_t read_axis(const MeshShape& mesh, Scanner& scanner, AxisSet& taken) {
  const char quote = taken_quote(scanner);
  scanner.at_end();  // moves to the name itself
  const size_t place = scanner.place();
  if (scanner.sees('-')) scanner.refuse(Status::kInvalidArgument, place, "axes are numbered from 0, not from the end");
  const std::string_view name = scanner.word();
  if (name.empty()) scanner.refuse(Status::kInvalidArgument, place, "the name of an axis is missing");
  if (quote != '\0' && !scanner.take(quote)) {
    scanner.refuse(Status::kInvalidArgument, scanner.place(), "the quote {} before {} is not closed", quote, name);
  }
  const std::optional<size_t> axis = find_named(mesh, name, quote != '\0');
  if (!axis) {
    AxisSet all = (AxisSet{1} << mesh.axis_count()) - 1;
    scanner.refuse(Status::kInvalidArgument, place, "mesh \"{}\" has no axis {}: it has {}", mesh.name(), name,
                   names_of(mesh, axes_of(all)));
  }
  if (has_axis(taken, *axis)) {
    scanner.refuse(Status::kInvalidArgument, place, "axis {} is there twice: an axis has one place", name);
  }
  taken |= AxisSet{1} << *axis;
  return static_cast<uint8_t>(*axis);
}

void check_items(const Scanner& scanner, size_t place, size_t items, size_t rank) {
  if (items == rank) return;
  scanner.refuse(Status::kInvalidArgument, place, "{} items for a tensor of {} dims: give each dim one", items, rank);
}

// ---- ('x', None) sum('y') -------------------------------------------------------------------------------------------

Spec read_tuple(const MeshShape& mesh, Scanner& scanner, size_t rank) {
  AxisSet taken = 0;
  Spec spec(rank);
  scanner.expect('(', "at the beginning");
  size_t items = 0;
  while (!scanner.take(')')) {
    if (items > 0) {
      scanner.expect(',', "between two items, or ')' at the end");
      if (scanner.take(')')) break;
    }
    Axes axes = read_item(mesh, scanner, taken);
    if (items < rank) spec.dim(items) = axes;
    ++items;
  }
  check_items(scanner, scanner.place(), items, rank);
  if (scanner.take_word("sum")) {
    const size_t place = scanner.place();
    scanner.expect('(', "behind sum");
    Axes partial = read_axis_list(mesh, scanner, taken);
    if (partial.empty()) scanner.refuse(Status::kInvalidArgument, place, "sum over no axis: leave it out");
    spec.set_partial(set_of(partial));
  }
  return spec;
}

std::string print_tuple(const MeshShape& mesh, const Spec& spec) {
  std::string text = "(";
  for (size_t i = 0; i < spec.rank(); ++i) {
    const Axes& axes = spec.dim(i);
    if (i > 0) text += ", ";
    if (axes.empty()) text += "None";
    if (axes.size() == 1) text += quoted(mesh, axes);
    if (axes.size() > 1) text += "(" + quoted(mesh, axes) + ")";
  }
  text += spec.rank() == 1 ? ",)" : ")";
  if (spec.partial() != 0) text += " sum(" + quoted(mesh, axes_of(spec.partial())) + ")";
  return text;
}

namespace {

// ---- which form -----------------------------------------------------------------------------------------------------

// Whether an item of DTensor comes next. An axis may have the same name; then a bracket must follow.
bool sees_placement(const MeshShape& mesh, Scanner ahead) {
  const std::string_view word = ahead.word();
  if (word == "Shard" || word == "Replicate" || word == "Partial" || word == "_Partial") {
    return ahead.sees('(') || !mesh.find_axis(word);
  }
  if (word != "S" && word != "R" && word != "P") return false;
  return ahead.sees('(') || !mesh.find_axis(word);
}

// Whether P is the short name of JAX's PartitionSpec, as in P('x', None), and not a reduction, as in P(sum).
bool sees_items(const MeshShape& mesh, Scanner ahead) {
  if (!ahead.take('(')) return false;
  if (ahead.sees('\'') || ahead.sees('"') || ahead.sees('(') || ahead.sees(')')) return true;
  return ahead.take_word("None") || mesh.find_axis(ahead.word()).has_value();
}

// Consumes `open` if items of DTensor follow it.
bool take_before_placement(const MeshShape& mesh, Scanner& scanner, char open) {
  Scanner ahead = scanner;
  if (!ahead.take(open) || !sees_placement(mesh, ahead)) return false;
  return scanner.take(open);
}

// Consumes P or PartitionSpec if it begins a text of JAX.
void skip_name_of_jax(const MeshShape& mesh, Scanner& scanner) {
  if (scanner.take_word("PartitionSpec")) return;
  Scanner ahead = scanner;
  if (ahead.take_word("P") && sees_items(mesh, ahead)) scanner.take_word("P");
}

}  // namespace

// ---- all forms ------------------------------------------------------------------------------------------------------

Spec parse_spec(const MeshShape& mesh, std::string_view text, size_t rank) {
  if (rank > kMaxRank) fail(Status::kInvalidArgument, "{} dims are too many: at most {}", rank, kMaxRank);
  Scanner scanner(text);
  Spec spec;
  skip_name_of_jax(mesh, scanner);
  if (take_before_placement(mesh, scanner, '(')) {
    spec = read_placements(mesh, scanner, rank, ')');
  } else if (take_before_placement(mesh, scanner, '[')) {
    spec = read_placements(mesh, scanner, rank, ']');
  } else if (scanner.sees('(')) {
    spec = read_tuple(mesh, scanner, rank);
  } else if (scanner.sees('{')) {
    spec = read_hlo(mesh, scanner, rank);
  } else if (scanner.sees('[') || scanner.take_word("sharding")) {
    spec = read_shardy(mesh, scanner, rank);
  } else {
    spec = read_placements(mesh, scanner, rank);
  }
  scanner.expect_end();
  return spec;
}

std::string print_spec(const MeshShape& mesh, const Spec& spec, SpecForm form) {
  switch (form) {
    case SpecForm::kTuple:
      return print_tuple(mesh, spec);
    case SpecForm::kPlacements:
      return print_placements(mesh, spec);
    case SpecForm::kHlo:
      return print_hlo(mesh, spec);
    case SpecForm::kHloIota:
      return print_hlo_iota(mesh, spec);
    case SpecForm::kShardy:
      return print_shardy(mesh, spec);
  }
  fail(Status::kInvalidArgument, "{} is no form of a spec", static_cast<int32_t>(form));
}

Axes parse_axes(const MeshShape& mesh, std::string_view text) {
  Scanner scanner(text);
  AxisSet taken = 0;
  Axes axes = read_item(mesh, scanner, taken);
  scanner.expect_end();
  if (axes.empty()) fail(Status::kInvalidArgument, "mesh \"{}\": None names no axis", mesh.name());
  return axes;
}

}  // namespace distag::layout
