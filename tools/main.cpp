// distag: starts groups of processes, and reports on this machine. A client of the C API alone.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <string>
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
constexpr const char* kUsages[] = {
    "run -n N [--restart K] [--grace SECONDS] [--trace FOLDER] [--] PROGRAM [ARGUMENTS...]",
    "doctor [--json]",
    "version [--json]",
    "keygen [--worker NAME FOLDER]",
    "checkpoint show|check DIRECTORY, or merge DIRECTORY FILE",
    "report FOLDER [--text] [-o PAGE] [--merged FILE]",
    "ps [--json] [--longer SECONDS]",
    "why [WORKER] [--json] [--longer SECONDS]",
    "top"};
constexpr const char* kHelp =
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

void print_usage(std::FILE* to) {
  for (const char* usage : kUsages)
    std::fprintf(to, "%s distag %s\n", usage == kUsages[0] ? "usage:" : "      ", usage);
  std::fprintf(to, "\n%s", kHelp);
}

int print_usage_of(std::string_view command) {
  for (const std::string_view usage : kUsages) {
    if (usage.substr(0, usage.find(' ')) == command) std::fprintf(stderr, "usage: distag %s\n", usage.data());
  }
  return kWrongUse;
}

// Tells what is wrong with the arguments of a command, and how it is called.
int refuse(const char* command, const std::string& wrong) {
  std::fprintf(stderr, "distag %s: %s\n", command, wrong.c_str());
  return print_usage_of(command);
}

std::string unknown(const char* word) { return "\"" + std::string(word) + "\" is not known"; }

// Commands whose only option is --json.
int print_with_json(std::span<char*> arguments, const char* command, int (*print)(bool as_json)) {
  bool as_json = false;
  for (const char* argument : arguments.subspan(1)) {
    if (std::strcmp(argument, "--json") != 0) return refuse(command, unknown(argument));
    as_json = true;
  }
  return print(as_json);
}

int run(std::span<char*> arguments) {
  const auto options = distag_tool::parse_run_options(arguments);
  return options ? distag_tool::run(*options) : print_usage_of("run");
}

int make_keys(std::span<char*> arguments) {
  if (arguments.size() == 1) return distag_tool::print_key();
  if (std::strcmp(arguments[1], "--worker") != 0) return refuse("keygen", unknown(arguments[1]));
  if (arguments.size() != 4) return refuse("keygen", "--worker wants a NAME and a FOLDER");
  return distag_tool::make_worker_key(arguments[2], arguments[3]);
}

bool is_help(std::string_view word) { return word == "help" || word == "--help" || word == "-h"; }

int look_at_checkpoint(std::span<char*> arguments) {
  if (arguments.size() < 2) return refuse("checkpoint", "show, check or merge is missing");
  const std::string_view command = arguments[1];
  if (command == "merge") {
    if (arguments.size() != 4) return refuse("checkpoint", "merge wants a DIRECTORY and a FILE");
    return distag_tool::merge_checkpoint(arguments[2], arguments[3]);
  }
  if (command != "show" && command != "check") return refuse("checkpoint", unknown(arguments[1]));
  if (arguments.size() != 3) return refuse("checkpoint", std::string(command) + " wants one DIRECTORY");
  return command == "show" ? distag_tool::show_checkpoint(arguments[2]) : distag_tool::check_checkpoint(arguments[2]);
}

int report_traces(std::span<char*> arguments) {
  distag_tool::ReportOptions options;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    const bool is_page = word == "-o";
    if (is_page || word == "--merged") {
      if (++i == arguments.size()) return refuse("report", std::string(word) + " wants the name of a file");
      (is_page ? options.page : options.merged) = arguments[i];
    } else if (word == "--text") {
      continue;  // text is the default
    } else if (word.starts_with('-') || !options.folder.empty()) {
      return refuse("report", unknown(arguments[i]));
    } else {
      options.folder = word;
    }
  }
  return options.folder.empty() ? refuse("report", "a FOLDER is missing") : distag_tool::print_report(options);
}

// False: the text is no time.
bool parse_seconds(const char* text, double& seconds) {
  char* end = nullptr;
  errno = 0;
  seconds = std::strtod(text, &end);
  return end != text && *end == '\0' && errno == 0 && seconds >= 0 && seconds <= 1e9;
}

int look(std::span<char*> arguments, bool takes_name, int (*print)(const distag_tool::LookOptions&)) {
  const char* const command = arguments[0];
  distag_tool::LookOptions options;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--json") {
      options.as_json = true;
    } else if (word == "--longer") {
      if (++i == arguments.size()) return refuse(command, "--longer wants seconds");
      if (!parse_seconds(arguments[i], options.longer)) {
        return refuse(command, "--longer wants seconds from 0 to 1e9, not \"" + std::string(arguments[i]) + "\"");
      }
    } else if (!takes_name || word.empty() || word.starts_with('-') || !options.name.empty()) {
      return refuse(command, unknown(arguments[i]));
    } else {
      options.name = word;
    }
  }
  return print(options);
}

int dispatch(std::span<char*> arguments) {
  if (arguments.empty()) return print_usage(stderr), kWrongUse;
  const std::string_view command = arguments[0];
  const bool asks = is_help(command) || (arguments.size() > 1 && arguments[1][0] == '-' && is_help(arguments[1]));
  if (asks) return print_usage(stdout), 0;
  if (command == "run") return run(arguments);
  signal(SIGXFSZ, SIG_IGN);  // set only now: programs of `run` inherit the old setting
  if (command == "doctor") return print_with_json(arguments, "doctor", distag_tool::print_doctor);
  if (command == "version" || command == "--version") {
    return print_with_json(arguments, "version", distag_tool::print_versions);
  }
  if (command == "keygen") return make_keys(arguments);
  if (command == "checkpoint") return look_at_checkpoint(arguments);
  if (command == "report") return report_traces(arguments);
  if (command == "ps") return look(arguments, false, distag_tool::print_ps);
  if (command == "why") return look(arguments, true, distag_tool::print_why);
  if (command == "top") return arguments.size() > 1 ? refuse("top", unknown(arguments[1])) : distag_tool::print_top();
  std::fprintf(stderr, "distag: \"%s\" is no command\nusage: distag COMMAND ...; distag --help lists them\n",
               arguments[0]);
  return kWrongUse;
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
