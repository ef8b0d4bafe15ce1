// distag: starts groups of processes, and tells what this machine gives. A client of the C API alone.
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>

#include "checkpoint.h"
#include "doctor.h"
#include "keygen.h"
#include "run/options.h"
#include "run/run.h"
#include "versions.h"

namespace {

constexpr int kWrongUse = 2;
constexpr const char* kUsage =
    "usage: distag run -n N [--restart K] [--grace SECONDS] [--] PROGRAM [ARGUMENTS...]\n"
    "       distag doctor [--json]\n"
    "       distag version [--json]\n"
    "       distag keygen [--worker NAME FOLDER]\n"
    "       distag checkpoint show|check DIRECTORY\n"
    "\n"
    "run      starts N processes of a program as one group, with their ranks before the lines that they print\n"
    "doctor   tells what this machine gives, and what to mend\n"
    "version  tells the versions of the library, its ABI and its protocol\n"
    "keygen   prints a new group key, for a file that DISTAG_GROUP_KEY_FILE names; or makes the key of one worker, in\n"
    "         FOLDER/NAME.key for its DISTAG_SECRET_KEY_FILE, and prints the line for all DISTAG_PEER_KEYS_FILEs\n"
    "checkpoint  shows what is saved in a directory, or reads and checks all of it\n";

int refuse(const char* what) {
  std::fprintf(stderr, "distag: \"%s\" is not known\n%s", what, kUsage);
  return kWrongUse;
}

// Commands whose only option is --json.
int report(std::span<char*> arguments, int (*print)(bool as_json)) {
  bool as_json = false;
  for (const char* argument : arguments.subspan(1)) {
    if (std::strcmp(argument, "--json") != 0) return refuse(argument);
    as_json = true;
  }
  return print(as_json);
}

int run(std::span<char*> arguments) {
  const auto options = distag_tool::parse_run_options(arguments);
  return options ? distag_tool::run(*options) : (std::fputs(kUsage, stderr), kWrongUse);
}

int make_keys(std::span<char*> arguments) {
  if (arguments.size() == 1) return distag_tool::print_key();
  if (std::strcmp(arguments[1], "--worker") != 0) return refuse(arguments[1]);
  if (arguments.size() != 4) return std::fputs(kUsage, stderr), kWrongUse;
  return distag_tool::make_worker_key(arguments[2], arguments[3]);
}

bool is_help(std::string_view word) { return word == "help" || word == "--help" || word == "-h"; }

int look_at_checkpoint(std::span<char*> arguments) {
  if (arguments.size() != 3) return std::fputs(kUsage, stderr), kWrongUse;
  const std::string_view command = arguments[1];
  if (command == "show") return distag_tool::show_checkpoint(arguments[2]);
  if (command == "check") return distag_tool::check_checkpoint(arguments[2]);
  return refuse(arguments[1]);
}

int dispatch(std::span<char*> arguments) {
  if (arguments.empty()) return std::fputs(kUsage, stderr), kWrongUse;
  const std::string_view command = arguments[0];
  const bool asks = is_help(command) || (arguments.size() > 1 && arguments[1][0] == '-' && is_help(arguments[1]));
  if (asks) return std::fputs(kUsage, stdout), 0;
  if (command == "run") return run(arguments);
  if (command == "doctor") return report(arguments, distag_tool::print_doctor);
  if (command == "version" || command == "--version") return report(arguments, distag_tool::print_versions);
  if (command == "keygen") return make_keys(arguments);
  if (command == "checkpoint") return look_at_checkpoint(arguments);
  return refuse(arguments[0]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(std::span(argv, static_cast<size_t>(argc)).subspan(argc > 0 ? 1 : 0));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "distag: %s\n", error.what());
    return 1;
  }
}
