#include "doctor.h"

#include <cstdio>
#include <exception>

#include "checks.h"
#include "group/launcher_table.h"

namespace distag_tool {
namespace {

// A check that cannot be made is also reported as a complaint.
Check guarded(const char* name, Check (*make)()) {
  try {
    return make();
  } catch (const std::exception& error) {
    return {name, error.what(), "mend what it says, then run distag doctor again"};
  }
}

std::vector<Check> make_checks() {
  return {guarded("versions", check_versions),
          guarded("BLAS", check_blas),
          guarded("descriptors", check_descriptors),
          guarded("same-machine lane", check_same_machine_lane),
          guarded("private folder", check_private_folder),
          guarded("env://", check_environment),
          guarded("training", check_training)};
}

std::string variables_of(const distag::LauncherRow& row) {
  std::string text;
  for (const char* name : {row.seen_by, row.rank, row.world_size}) {
    if (name != nullptr) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

nlohmann::ordered_json describe_launchers() {
  auto rows = nlohmann::ordered_json::array();
  for (const distag::LauncherRow& row : distag::kLaunchers) {
    std::vector<std::string> more;
    for (const char* name : {row.local_rank, row.local_size, row.node, row.node_count, row.restart}) {
      if (name != nullptr) more.emplace_back(name);
    }
    rows.push_back({{"name", row.name},
                    {"started_by", row.started_by},
                    {"seen_by", variables_of(row)},
                    {"more", more},
                    {"meeting", row.meeting}});
  }
  return rows;
}

void print_json(const std::vector<Check>& checks, bool is_well) {
  nlohmann::ordered_json json = {{"ok", is_well}, {"checks", nlohmann::ordered_json::array()}};
  for (const Check& each : checks) {
    nlohmann::ordered_json entry = {{"name", each.name}, {"ok", each.remedy.empty()}, {"text", each.text}};
    if (!each.remedy.empty()) entry["remedy"] = each.remedy;
    entry.update(each.facts);
    json["checks"].push_back(std::move(entry));
  }
  json["launchers"] = describe_launchers();
  std::printf("%s\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

void print_page(const std::vector<Check>& checks, bool is_well) {
  for (const Check& each : checks) {
    std::printf("%-4s %-18s %s\n", each.remedy.empty() ? "ok" : "BAD", each.name.c_str(), each.text.c_str());
    if (!each.remedy.empty()) std::printf("%-23s to do: %s\n", "", each.remedy.c_str());
  }
  std::printf("launchers, of which the first with all its variables counts:\n");
  for (const distag::LauncherRow& row : distag::kLaunchers) {
    std::printf("     %-18s %s (%s); %s\n", row.name, variables_of(row).c_str(), row.started_by, row.meeting);
  }
  std::printf("%s\n", is_well ? "all is well" : "something is to be mended");
}

}  // namespace

int print_doctor(bool as_json) {
  const std::vector<Check> checks = make_checks();
  bool is_well = true;
  for (const Check& each : checks) is_well = is_well && each.remedy.empty();
  (as_json ? print_json : print_page)(checks, is_well);
  return is_well ? 0 : 1;
}

}  // namespace distag_tool
