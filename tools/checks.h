#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace distag_tool {

// One line of the doctor's page.
struct Check {
  std::string name;
  std::string text;
  std::string remedy = "";                                          // what to do; empty when all is well
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();  // for machines
};

Check check_versions();
Check check_blas();
Check check_descriptors();
Check check_same_machine_lane();
Check check_private_folder();
Check check_environment();
Check check_training();

}  // namespace distag_tool
