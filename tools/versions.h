#pragma once

#include <string>

namespace distag_tool {

struct Versions {
  std::string loaded;       // of the library
  std::string compiled;     // of the header that this command was built with
  int abi = 0;              // of the header
  bool serves_abi = false;  // whether the library supports that ABI
  int protocol = 0;         // of the library's messages
};

Versions read_versions();

int print_versions(bool as_json);

}  // namespace distag_tool
