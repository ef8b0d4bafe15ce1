// distag: starts groups of processes, and reports on this machine. A client of the C API alone.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <string_view>

#include "checkpoint.h"
#include "doctor.h"
#include "keygen.h"
#include "ps.h"
#include "report.h"
#include "run/options.h"
#include "run/run.h"
#include "versions.h"

namespace {

constexpr int kWrongUse = 2;
constexpr const char* kUsage =
    "usage: distag run -n N [--restart K] [--grace SECONDS] [--trace FOLDER] [--] PROGRAM [ARGUMENTS...]\n"
    "       distag doctor [--json]\n"
    "       distag version [--json]\n"
    "       distag keygen [--worker NAME FOLDER]\n"
    "       distag checkpoint show|check DIRECTORY\n"
    "       distag checkpoint merge DIRECTORY FILE\n"
    "       distag report FOLDER [--text] [-o PAGE] [--merged FILE]\n"
    "       distag ps [--json] [--longer SECONDS]\n"
    "       distag why [WORKER] [--json] [--longer SECONDS]\n"
    "       distag top\n"
    "\n"
    "run      starts N processes of a program as one group, with their ranks before the lines that they print\n"
    "doctor   tells what this machine gives, and what to mend\n"
    "version  tells the versions of the library, its ABI and its protocol\n"
    "keygen   prints a new group key, for a file that DISTAG_GROUP_KEY_FILE names; or makes the key of one worker, in\n"
    "         FOLDER/NAME.key for its DISTAG_SECRET_KEY_FILE, and prints the line for all DISTAG_PEER_KEYS_FILEs\n"
    "checkpoint  shows what is saved in a directory, checks it, or makes one file of it\n"
    "report   tells from the traces in a folder (DISTAG_TRACE) how long each worker ran and waited, and for which "
    "calls;\n"
    "         PAGE is an HTML file with the timeline, FILE all traces in one, for Perfetto\n"
    "ps       lists the workers of this user on this machine, and what each waits for\n"
    "why      tells who holds up the groups that these workers are in, over all machines; leaves with 3 where a "
    "worker\n"
    "         waits longer than SECONDS\n"
    "top      shows both, again each second\n";

int refuse(const char* what) {
  std::fprintf(stderr, "distag: \"%s\" is not known\n%s", what, kUsage);
  return kWrongUse;
}

// Commands whose only option is --json.
int print_with_json(std::span<char*> arguments, int (*print)(bool as_json)) {
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
  const std::string_view command = arguments.size() < 2 ? "" : arguments[1];
  if (arguments.size() == 4 && command == "merge") return distag_tool::merge_checkpoint(arguments[2], arguments[3]);
  if (arguments.size() != 3 || command == "merge") return std::fputs(kUsage, stderr), kWrongUse;
  if (command == "show") return distag_tool::show_checkpoint(arguments[2]);
  if (command == "check") return distag_tool::check_checkpoint(arguments[2]);
  return refuse(arguments[1]);
}

int report_traces(std::span<char*> arguments) {
  distag_tool::ReportOptions options;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    const bool is_page = word == "-o";
    if (is_page || word == "--merged") {
      if (++i == arguments.size()) return std::fputs(kUsage, stderr), kWrongUse;
      (is_page ? options.page : options.merged) = arguments[i];
    } else if (word == "--text") {
      continue;  // text is the default
    } else if (word.starts_with('-') || !options.folder.empty()) {
      return refuse(arguments[i]);
    } else {
      options.folder = word;
    }
  }
  return options.folder.empty() ? (std::fputs(kUsage, stderr), kWrongUse) : distag_tool::print_report(options);
}

// False: the text is no time.
bool parse_seconds(const char* text, double& seconds) {
  char* end = nullptr;
  errno = 0;
  seconds = std::strtod(text, &end);
  return end != text && *end == '\0' && errno == 0 && seconds >= 0 && seconds <= 1e9;
}

int look(std::span<char*> arguments, bool takes_name, int (*print)(const distag_tool::LookOptions&)) {
  distag_tool::LookOptions options;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--json") {
      options.as_json = true;
    } else if (word == "--longer") {
      if (++i == arguments.size() || !parse_seconds(arguments[i], options.longer)) {
        return std::fputs(kUsage, stderr), kWrongUse;
      }
    } else if (!takes_name || word.empty() || word.starts_with('-') || !options.name.empty()) {
      return refuse(arguments[i]);
    } else {
      options.name = word;
    }
  }
  return print(options);
}

int dispatch(std::span<char*> arguments) {
  if (arguments.empty()) return std::fputs(kUsage, stderr), kWrongUse;
  const std::string_view command = arguments[0];
  const bool asks = is_help(command) || (arguments.size() > 1 && arguments[1][0] == '-' && is_help(arguments[1]));
  if (asks) return std::fputs(kUsage, stdout), 0;
  if (command == "run") return run(arguments);
  signal(SIGXFSZ, SIG_IGN);  // set only now: programs of `run` inherit the old setting
  if (command == "doctor") return print_with_json(arguments, distag_tool::print_doctor);
  if (command == "version" || command == "--version") return print_with_json(arguments, distag_tool::print_versions);
  if (command == "keygen") return make_keys(arguments);
  if (command == "checkpoint") return look_at_checkpoint(arguments);
  if (command == "report") return report_traces(arguments);
  if (command == "ps") return look(arguments, false, distag_tool::print_ps);
  if (command == "why") return look(arguments, true, distag_tool::print_why);
  if (command == "top") return arguments.size() > 1 ? refuse(arguments[1]) : distag_tool::print_top();
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
