#pragma once

#include <string>
#include <vector>

#include "waits.h"

namespace distag_tool {

struct LookOptions {
  bool as_json = false;
  double longer = -1;  // seconds; negative: not asked
  std::string name;    // of the worker to ask about; empty: all
};

// Prints the workers of this user on this machine.
int print_ps(const LookOptions& options);
// Prints the waits in their groups. Gives 3 if a worker waits longer than options.longer.
int print_why(const LookOptions& options);
// Prints both, each second, until q is typed or the input ends.
int print_top();

// Workers on this machine alone.
std::vector<Node> look_here();
// Includes the members of their groups on other machines.
std::vector<Node> look_at_groups();
// Prints the table of these workers, then their waits.
void print_all();

}  // namespace distag_tool
