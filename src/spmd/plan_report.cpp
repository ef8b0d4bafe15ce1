#include "spmd/plan_report.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/plain_numbers.h"

namespace distag::spmd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr int kDeepest = 8;
constexpr size_t kLargest = size_t{64} << 20;  // bytes of the text

[[noreturn]] void refuse_report(const std::string& why) {
  fail(Status::kInvalidArgument, "not the report of a plan: {}; pass the text from distag_plan_copy_report", why);
}

Json parse(const std::string& text) {
  if (text.size() > kLargest) fail(Status::kInvalidArgument, "a text of {} bytes, more than 64 MiB", text.size());
  try {
    return Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
      if (depth > kDeepest) refuse_report(fmt::format("it is nested deeper than {}", kDeepest));
      return true;
    });
  } catch (const Json::parse_error& error) {
    refuse_report(fmt::format("invalid JSON at byte {}", error.byte));
  } catch (const Json::exception&) {
    refuse_report("a number of its JSON is too large");
  }
}

// Entries of an object in a report, which `place` names.
const Json& need(const Json& object, const char* name, const std::string& place = "it") {
  const auto found = object.find(name);
  if (found == object.end()) refuse_report(fmt::format("{} has no \"{}\"", place, name));
  return *found;
}
std::string need_text(const Json& object, const char* name, const std::string& place = "it") {
  const Json& text = need(object, name, place);
  if (!text.is_string()) refuse_report(fmt::format("\"{}\" of {} must be a text", name, place));
  return text.get<std::string>();
}
const Json& need_list(const Json& object, const char* name, const std::string& place = "it") {
  const Json& list = need(object, name, place);
  if (!list.is_array()) refuse_report(fmt::format("\"{}\" of {} must be a list", name, place));
  return list;
}
uint64_t need_count(const Json& object, const char* name, const std::string& place = "it") {
  const Json& count = need(object, name, place);
  if (!count.is_number_unsigned()) refuse_report(fmt::format("\"{}\" of {} must be a count", name, place));
  return count.get<uint64_t>();
}

Json describe(const layout::MeshShape& mesh) {
  Json ranks = Json::array();
  for (const int32_t rank : mesh.ranks()) ranks.push_back(rank);
  Json sizes = Json::array();
  for (const int64_t size : mesh.sizes()) sizes.push_back(size);
  return {{"axes", mesh.axis_names()}, {"sizes", std::move(sizes)}, {"ranks", std::move(ranks)}};
}

Dtype dtype_named(const std::string& name) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt64, Dtype::kBool}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  fail(Status::kInvalidArgument, "no dtype \"{}\"", name);
}

std::string text_of(uint64_t program) { return fmt::format("{:016x}", program); }
const char* mode_of(const PlanReport& report) {
  if (report.search) return "auto";
  return report.program ? "complete" : "rules";
}

// The program of the report. It has one unless its mode is "rules".
std::optional<uint64_t> read_program(const Json& report, std::optional<uint64_t> wanted) {
  const std::string mode = need_text(report, "mode");
  if (mode == "rules") {
    if (wanted) fail(Status::kInvalidArgument, "its mode is \"rules\": a plan without roots, and here are some");
    return std::nullopt;
  }
  if (mode != "complete" && mode != "auto") fail(Status::kInvalidArgument, "no plan has its mode");
  const std::string text = need_text(report, "program");
  uint64_t program = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), program, 16);
  if (error != std::errc() || end != text.data() + text.size() || text != text_of(program)) {
    fail(Status::kInvalidArgument, "program is no hash");
  }
  if (wanted && program != *wanted) fail(Status::kInvalidArgument, "a plan for another program");
  return program;
}

ReportedLeaf read_leaf(const Json& json, const std::string& place) {
  ReportedLeaf leaf;
  leaf.name = need_text(json, "name", place);
  leaf.dtype = dtype_named(need_text(json, "dtype", place));
  const Json& shape = need_list(json, "shape", place);
  if (shape.size() > kMaxRank) fail(Status::kInvalidArgument, "a shape has at most {} sizes", kMaxRank);
  for (const Json& size : shape) {
    if (!size.is_number_integer()) fail(Status::kInvalidArgument, "sizes are integers");
    leaf.shape.push_back(size.get<int64_t>());
  }
  leaf.spec = need_text(json, "spec", place);
  leaf.why = need_text(json, "why", place);
  return leaf;
}

ReportedOp read_op(const Json& json, const std::string& place) {
  return {need_text(json, "name", place), need_text(json, "spec", place), need_text(json, "why", place)};
}

// Visits the counts of a step by their names.
template <typename Counts, typename Visit>
void for_each_count(Counts& counts, const Visit& visit) {
  visit("all_reduces", counts.all_reduces);
  visit("all_gathers", counts.all_gathers);
  visit("reduce_scatters", counts.reduce_scatters);
  visit("all_to_alls", counts.all_to_alls);
  visit("moves", counts.moves);
  visit("bytes_sent", counts.bytes_sent);
  visit("bytes_received", counts.bytes_received);
}

double read_seconds(const Json& json, const char* name) {
  const Json& seconds = need(json, name);
  if (!seconds.is_number() || !std::isfinite(seconds.get<double>()) || seconds.get<double>() < 0) {
    fail(Status::kInvalidArgument, "{} is no time", name);
  }
  return seconds.get<double>();
}

ReportedSearch read_search(const Json& json) {
  ReportedSearch search;
  search.seconds = read_seconds(json, "seconds");
  search.bound = read_seconds(json, "bound");
  const Json& costs = need(json, "costs");
  if (!costs.is_object()) fail(Status::kInvalidArgument, "costs are no object");
  search.costs = costs.dump(-1, ' ', false, Json::error_handler_t::replace);
  search.activations = need_count(json, "activations");
  const Json& step = need(json, "step");
  for_each_count(search.counts,
                 [&step](const char* name, uint64_t& count) { count = need_count(step, name, "\"step\""); });
  return search;
}

}  // namespace

std::string write_plan_report(const layout::MeshShape& mesh, const PlanReport& report) {
  Json listed = Json::array();
  for (const ReportedLeaf& leaf : report.leaves) {
    Json shape = Json::array();
    for (const int64_t size : leaf.shape) shape.push_back(size);
    listed.push_back({{"name", leaf.name},
                      {"dtype", dtype_name(leaf.dtype)},
                      {"shape", std::move(shape)},
                      {"spec", leaf.spec},
                      {"why", leaf.why}});
  }
  Json ops = Json::array();
  for (const ReportedOp& op : report.ops) ops.push_back({{"name", op.name}, {"spec", op.spec}, {"why", op.why}});
  Json json = {{"version", kVersion}};
  if (report.program) json["program"] = text_of(*report.program);
  json["mesh"] = describe(mesh);
  json["mode"] = mode_of(report);
  if (report.search) {
    const PlainNumbers numbers;
    json["seconds"] = report.search->seconds;
    json["bound"] = report.search->bound;
    json["costs"] = Json::parse(report.search->costs);
    json["activations"] = report.search->activations;
    for_each_count(report.search->counts, [&json](const char* name, uint64_t count) { json["step"][name] = count; });
  }
  json["memory"] = report.memory;
  json["leaves"] = std::move(listed);
  json["ops"] = std::move(ops);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

PlanReport read_plan_report(const layout::MeshShape& mesh, std::optional<uint64_t> program, const std::string& text) {
  PlanReport read;
  try {
    const PlainNumbers numbers;
    const Json report = parse(text);
    if (need(report, "version") != kVersion) fail(Status::kInvalidArgument, "version is not {}", kVersion);
    read.program = read_program(report, program);
    if (need(report, "mode") == "auto") read.search = read_search(report);
    if (need(report, "mesh") != describe(mesh)) fail(Status::kInvalidArgument, "a plan for another mesh");
    for (const Json& leaf : need_list(report, "leaves")) {
      read.leaves.push_back(read_leaf(leaf, fmt::format("leaves[{}]", read.leaves.size())));
    }
    for (const Json& op : need_list(report, "ops")) {
      read.ops.push_back(read_op(op, fmt::format("ops[{}]", read.ops.size())));
    }
  } catch (...) {
    throw current_error().add_context("saved");
  }
  return read;
}

}  // namespace distag::spmd
