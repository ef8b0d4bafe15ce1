#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace distag_tool {

// A line of the doctor's page.
struct Check {
  std::string name;
  std::string text;
  std::string remedy = "";                                          // the remedy; empty when all is well
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();  // for programs
};

Check check_versions();
Check check_blas();
Check check_descriptors();
Check check_same_machine_lane();
Check check_private_folder();
Check check_environment();
Check check_training();

}  // namespace distag_tool
