// A second source file of unit_test.cpp: it has a type of its own with the name of one that is there.
#include <distag.hpp>

#include <string>

namespace {

struct Plain {};

}  // namespace

std::string name_of_plain_elsewhere();
std::string name_of_plain_elsewhere() { return distag::detail::type_name<Plain>(); }
