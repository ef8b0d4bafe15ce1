#include "run/options.h"

#include <getopt.h>

#include <charconv>
#include <cstdio>
#include <cstring>

namespace distag_tool {
namespace {

constexpr int kMostRanks = 65536;  // in one group
constexpr int kMostSeconds = 86400;
constexpr int kMostRestarts = 1000000;

// Parses a whole number in a range, or prints a complaint.
std::optional<int> parse_number(const char* option, const char* text, int least, int most) {
  int number = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, number);
  if (error == std::errc() && stop == end && number >= least && number <= most) return number;
  std::fprintf(stderr, "distag run: %s is \"%s\": give a whole number from %d to %d\n", option, text, least, most);
  return std::nullopt;
}

std::optional<int> parse_option(int option, const char* text) {
  switch (option) {
    case 'n':
      return parse_number("-n", text, 1, kMostRanks);
    case 'r':
      return parse_number("--restart", text, 0, kMostRestarts);
    case 'g':
      return parse_number("--grace", text, 0, kMostSeconds);
    default:
      return std::nullopt;  // getopt has printed what is wrong
  }
}

}  // namespace

std::optional<RunOptions> parse_run_options(std::span<char*> arguments) {
  static constexpr option kLong[] = {{"restart", required_argument, nullptr, 'r'},
                                     {"grace", required_argument, nullptr, 'g'},
                                     {"trace", required_argument, nullptr, 't'},
                                     {nullptr, 0, nullptr, 0}};
  char name[] = "distag run";  // getopt begins its complaints with it
  std::vector<char*> words(arguments.begin(), arguments.end());
  words.front() = name;
  words.push_back(nullptr);
  const int count = static_cast<int>(arguments.size());

  RunOptions options;
  for (int option = 0; (option = getopt_long(count, words.data(), "+n:", kLong, nullptr)) != -1;) {
    if (option == 't') {
      options.trace = optarg;
      if (!options.trace.empty()) continue;
      std::fprintf(stderr, "distag run: --trace is empty: name a folder\n");
      return std::nullopt;
    }
    const std::optional<int> number = parse_option(option, optarg);
    if (!number) return std::nullopt;
    if (option == 'n') options.rank_count = *number;
    if (option == 'r') options.restart_count = *number;
    if (option == 'g') options.grace = std::chrono::seconds(*number);
  }
  options.command.assign(words.begin() + optind, words.end() - 1);
  if (options.rank_count > 0 && !options.command.empty()) return options;
  std::fprintf(stderr, "distag run: %s\n", options.rank_count > 0 ? "name a program" : "-n is missing: say how many");
  return std::nullopt;
}

}  // namespace distag_tool
