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
  const std::string mode = report.at("mode").get<std::string>();
  if (mode == "rules") {
    if (wanted) fail(Status::kInvalidArgument, "its mode is \"rules\": a plan without roots, and here are some");
    return std::nullopt;
  }
  if (mode != "complete" && mode != "auto") fail(Status::kInvalidArgument, "no plan has its mode");
  const std::string text = report.at("program").get<std::string>();
  uint64_t program = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), program, 16);
  if (error != std::errc() || end != text.data() + text.size() || text != text_of(program)) {
    fail(Status::kInvalidArgument, "program is no hash");
  }
  if (wanted && program != *wanted) fail(Status::kInvalidArgument, "a plan for another program");
  return program;
}

ReportedLeaf read_leaf(const Json& json) {
  ReportedLeaf leaf;
  leaf.name = json.at("name").get<std::string>();
  leaf.dtype = dtype_named(json.at("dtype").get<std::string>());
  const Json& shape = json.at("shape");
  if (!shape.is_array() || shape.size() > kMaxRank)
    fail(Status::kInvalidArgument, "a shape has at most {} sizes", kMaxRank);
  for (const Json& size : shape) {
    if (!size.is_number_integer()) fail(Status::kInvalidArgument, "sizes are integers");
    leaf.shape.push_back(size.get<int64_t>());
  }
  leaf.spec = json.at("spec").get<std::string>();
  leaf.why = json.at("why").get<std::string>();
  return leaf;
}

ReportedOp read_op(const Json& json) {
  return {json.at("name").get<std::string>(), json.at("spec").get<std::string>(), json.at("why").get<std::string>()};
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
  const Json& seconds = json.at(name);
  if (!seconds.is_number() || !std::isfinite(seconds.get<double>()) || seconds.get<double>() < 0) {
    fail(Status::kInvalidArgument, "{} is no time", name);
  }
  return seconds.get<double>();
}

ReportedSearch read_search(const Json& json) {
  ReportedSearch search;
  search.seconds = read_seconds(json, "seconds");
  search.bound = read_seconds(json, "bound");
  if (!json.at("costs").is_object()) fail(Status::kInvalidArgument, "costs are no object");
  search.costs = json.at("costs").dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!json.at("activations").is_number_unsigned()) fail(Status::kInvalidArgument, "activations are no count");
  search.activations = json.at("activations").get<uint64_t>();
  const Json& step = json.at("step");
  for_each_count(search.counts, [&step](const char* name, uint64_t& count) {
    if (!step.at(name).is_number_unsigned()) fail(Status::kInvalidArgument, "step.{} is no count", name);
    count = step.at(name).get<uint64_t>();
  });
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
  if (text.size() > kLargest)
    fail(Status::kInvalidArgument, "saved: a text of {} bytes, more than 64 MiB", text.size());
  PlanReport read;
  try {
    const PlainNumbers numbers;
    const Json report = Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
      if (depth > kDeepest)
        fail(Status::kInvalidArgument, "no report of a plan: it is nested deeper than {}", kDeepest);
      return true;
    });
    if (report.at("version") != kVersion) fail(Status::kInvalidArgument, "version is not {}", kVersion);
    read.program = read_program(report, program);
    if (report.at("mode") == "auto") read.search = read_search(report);
    if (report.at("mesh") != describe(mesh)) fail(Status::kInvalidArgument, "a plan for another mesh");
    for (const Json& leaf : report.at("leaves")) read.leaves.push_back(read_leaf(leaf));
    for (const Json& op : report.at("ops")) read.ops.push_back(read_op(op));
  } catch (const Json::exception& error) {
    fail(Status::kInvalidArgument, "saved: no report of a plan: {}", error.what());
  } catch (...) {
    throw current_error().add_context("saved");
  }
  return read;
}

}  // namespace distag::spmd
