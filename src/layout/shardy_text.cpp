// The form of Shardy: sharding<@mesh, [{"x"}, {"z", "y"}], replicated={"w"}, unreduced={"v"}>, or its list alone.
#include "layout/spec_forms.h"

namespace distag::layout {
namespace {

void refuse_open(Scanner& scanner) {
  if (scanner.sees('?')) {
    scanner.refuse(Status::kUnsupported, scanner.place(), "an open dim: say which axes cut it");
  }
}

// {"x", "y"}
Axes read_axes(const MeshShape& mesh, Scanner& scanner, AxisSet& taken) {
  Axes axes;
  scanner.expect('{', "before the axes of a dim");
  refuse_open(scanner);
  while (!scanner.take('}')) {
    if (!axes.empty()) scanner.expect(',', "between two axes");
    refuse_open(scanner);
    axes.push_back(read_axis(mesh, scanner, taken));
    if (scanner.sees(':')) scanner.refuse(Status::kUnsupported, scanner.place(), "a part of an axis: take it whole");
  }
  return axes;
}

void read_dims(const MeshShape& mesh, Scanner& scanner, AxisSet& taken, Spec& spec) {
  size_t items = 0;
  scanner.expect('[', "before the dims");
  while (!scanner.take(']')) {
    if (items > 0) scanner.expect(',', "between two dims");
    Axes axes = read_axes(mesh, scanner, taken);
    if (scanner.sees('p')) scanner.refuse(Status::kUnsupported, scanner.place(), "a priority: leave it out");
    if (items < spec.rank()) spec.dim(items) = axes;
    ++items;
  }
  check_items(scanner, scanner.place(), items, spec.rank());
}

}  // namespace

// Reads the text after the word sharding, which may be missing.
Spec read_shardy(const MeshShape& mesh, Scanner& scanner, size_t rank) {
  Spec spec(rank);
  AxisSet taken = 0;
  if (!scanner.take('<')) {
    read_dims(mesh, scanner, taken, spec);
    return spec;
  }
  scanner.expect('@', "before the name of the mesh");
  const size_t place = scanner.place();
  const std::string_view name = scanner.take('"') ? scanner.until('"') : scanner.word();
  if (name != mesh.name()) {
    scanner.refuse(Status::kInvalidArgument, place, "mesh @{} is meant, but this is mesh \"{}\"", name, mesh.name());
  }
  scanner.expect(',', "behind the mesh");
  read_dims(mesh, scanner, taken, spec);
  while (!scanner.take('>')) {
    scanner.expect(',', "before replicated or unreduced, or '>' at the end");
    if (scanner.take_word("replicated")) {
      scanner.expect('=', "behind replicated");
      read_axes(mesh, scanner, taken);
    } else if (scanner.take_word("unreduced")) {
      scanner.expect('=', "behind unreduced");
      spec.set_partial(spec.partial() | set_of(read_axes(mesh, scanner, taken)));
    } else {
      scanner.refuse(Status::kInvalidArgument, scanner.place(), "replicated={{..}} or unreduced={{..}} is missing");
    }
  }
  return spec;
}

std::string print_shardy(const MeshShape& mesh, const Spec& spec) {
  auto axes_text = [&mesh](const Axes& axes) {
    std::string text;
    for (uint8_t axis : axes) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", mesh.axis_name(axis));
    return "{" + text + "}";
  };
  if (mesh.name().find('"') != std::string::npos) {
    fail(Status::kUnsupported, "mesh \"{}\": the form of Shardy has no names with a quote", mesh.name());
  }
  const bool is_plain = !mesh.name().empty() && Scanner(mesh.name()).word() == mesh.name();
  std::string text = is_plain ? "sharding<@" + mesh.name() + ", [" : "sharding<@\"" + mesh.name() + "\", [";
  for (size_t i = 0; i < spec.rank(); ++i) text += (i == 0 ? "" : ", ") + axes_text(spec.dim(i));
  text += "]";
  if (spec.partial() != 0) text += ", unreduced=" + axes_text(axes_of(spec.partial()));
  return text + ">";
}

}  // namespace distag::layout
