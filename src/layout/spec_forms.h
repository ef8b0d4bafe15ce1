#pragma once

#include "layout/scanner.h"
#include "layout/spec_text.h"

// The forms of a spec, one reader and one printer each; parse_spec() and print_spec() choose among them.
namespace distag::layout {

Spec read_tuple(const MeshShape& mesh, Scanner& scanner, size_t rank);
// With `close` the items stand in brackets, of which the first was read.
Spec read_placements(const MeshShape& mesh, Scanner& scanner, size_t rank, char close = '\0');
Spec read_hlo(const MeshShape& mesh, Scanner& scanner, size_t rank);
Spec read_shardy(const MeshShape& mesh, Scanner& scanner, size_t rank);

// A text of HLO without a mesh, as a mesh of its devices: an axis for each of its sizes, and the spec that it is there.
struct NamedDevices {
  MeshShape mesh;
  Spec spec;
  bool is_of_any_rank;  // it names no dims: the same for tensors of all ranks
  bool is_everywhere;   // replicated: on devices that it does not name
};
NamedDevices read_hlo_alone(std::string_view text);

std::string print_tuple(const MeshShape& mesh, const Spec& spec);
std::string print_placements(const MeshShape& mesh, const Spec& spec);
std::string print_hlo(const MeshShape& mesh, const Spec& spec);
std::string print_hlo_iota(const MeshShape& mesh, const Spec& spec);
std::string print_shardy(const MeshShape& mesh, const Spec& spec);

// An axis by its name, plain or in quotes, or by its number; not one of `taken`, to which it is added.
uint8_t read_axis(const MeshShape& mesh, Scanner& scanner, AxisSet& taken);
// Throws INVALID_ARGUMENT naming both numbers when they differ.
void check_items(const Scanner& scanner, size_t place, size_t items, size_t rank);

}  // namespace distag::layout
