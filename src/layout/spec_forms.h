#pragma once

#include "layout/scanner.h"
#include "layout/spec_text.h"

// The forms of a spec, one reader and one printer each; parse_spec() and print_spec() choose among them.
namespace distag::layout {

Spec read_tuple(const MeshShape& mesh, Scanner& scanner, size_t rank);
Spec read_placements(const MeshShape& mesh, Scanner& scanner, size_t rank);
Spec read_hlo(const MeshShape& mesh, Scanner& scanner, size_t rank);
Spec read_shardy(const MeshShape& mesh, Scanner& scanner, size_t rank);

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
