#pragma once

#include <string>
#include <vector>

#include "waits.h"

namespace distag_tool {

struct LookOptions {
  bool as_json = false;
  double longer = -1;  // seconds; negative: not asked
  std::string name;    // of the worker that is asked about; empty: all
};

// The workers of this user on this machine.
int print_ps(const LookOptions& options);
// What is waited for in their groups. 3 where somebody waits longer than options.longer.
int print_why(const LookOptions& options);
// Both, again each second, until q is typed or the input ends.
int print_top();

// Of this machine alone.
std::vector<Node> look_here();
// With the members of their groups, also on other machines.
std::vector<Node> look_at_groups();
// Prints the table of these workers, then what they wait for.
void print_all();

}  // namespace distag_tool
