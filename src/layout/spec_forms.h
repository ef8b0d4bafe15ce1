#pragma once

#include "layout/scanner.h"
#include "layout/spec_text.h"

// The forms of a spec, one reader and one printer each; parse_spec() and print_spec() choose among them.
namespace distag::layout {

Spec read_tuple(const MeshShape& mesh, Scanner& scanner, size_t rank);
// With `close` the items stand in brackets; the opening bracket is consumed already.
Spec read_placements(const MeshShape& mesh, Scanner& scanner, size_t rank, char close = '\0');
Spec read_hlo(const MeshShape& mesh, Scanner& scanner, size_t rank);
Spec read_shardy(const MeshShape& mesh, Scanner& scanner, size_t rank);

// HLO text without a mesh: its devices as a mesh with an axis for each of its sizes, and the spec on that mesh.
struct NamedDevices {
  MeshShape mesh;
  Spec spec;
  bool is_of_any_rank;  // the text names no dims, so it fits tensors of any rank
  bool is_everywhere;   // replicated, on devices that the text does not name
};
NamedDevices read_hlo_alone(std::string_view text);

std::string print_tuple(const MeshShape& mesh, const Spec& spec);
std::string print_placements(const MeshShape& mesh, const Spec& spec);
std::string print_hlo(const MeshShape& mesh, const Spec& spec);
std::string print_hlo_iota(const MeshShape& mesh, const Spec& spec);
std::string print_shardy(const MeshShape& mesh, const Spec& spec);

// Reads an axis by its name, plain or quoted, or by its number. The axis must not be in `taken`, and is added to it.
uint8_t read_axis(const MeshShape& mesh, Scanner& scanner, AxisSet& taken);
// Throws INVALID_ARGUMENT, which names both numbers, when they differ.
void check_items(const Scanner& scanner, size_t place, size_t items, size_t rank);

}  // namespace distag::layout
