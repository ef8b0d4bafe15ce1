#include "spmd/plan_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/plain_numbers.h"

namespace distag::spmd {
namespace {

using Json = nlohmann::ordered_json;
using layout::AxisSet;
using layout::MeshShape;

constexpr int kDeepestCosts = 4;
constexpr size_t kLargestCosts = size_t{1} << 20;  // bytes of the text
constexpr double kMostAlpha = 1e6;
constexpr double kMostBeta = 1;
constexpr double kMostRate = 1e21;
constexpr double kRate = 1e10;
constexpr uint64_t kMebibyte = uint64_t{1} << 20;
constexpr uint64_t kGiga = 1'000'000'000;

std::string short_name(const std::string& name) { return name.substr(0, 64) + (name.size() > 64 ? "..." : ""); }

// units * price / unit, rounded up.
uint64_t priced(uint64_t units, uint64_t price, uint64_t unit) {
  const unsigned __int128 total = static_cast<unsigned __int128>(units) * price;
  const unsigned __int128 each = total / unit + (total % unit != 0 ? 1 : 0);
  return each > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(each);
}

const Json& costs_object(const Json& json, const std::string& place) {
  if (!json.is_object()) fail(Status::kInvalidArgument, "costs: {} is no object", place);
  return json;
}

double costs_number(const Json& json, const std::string& place, double most) {
  if (!json.is_number()) fail(Status::kInvalidArgument, "costs: {} is no number", place);
  const double number = json.get<double>();
  if (std::isfinite(number) && number >= 0 && number <= most) return number;
  fail(Status::kInvalidArgument, "costs: {} is {}, not a number from 0 to {}", place, number, most);
}

// Reads "alpha" and "beta" of an object, each if present.
template <typename Link>
void read_link_costs(const Json& json, const std::string& place, Link& link) {
  for (const auto& [key, value] : costs_object(json, place).items()) {
    const std::string at = fmt::format("{}.{}", place, short_name(key));
    if (key == "alpha") {
      link.alpha = costs_number(value, at, kMostAlpha);
    } else if (key == "beta") {
      link.beta = costs_number(value, at, kMostBeta);
    } else {
      fail(Status::kInvalidArgument, "costs: {} is no cost of an axis: alpha and beta are", at);
    }
  }
}

bool crosses_granules(const MeshShape& mesh, size_t axis) {
  for (int64_t position = 0; position < mesh.count(); ++position) {
    const int64_t first = mesh.moved(position, {static_cast<uint8_t>(axis)}, 0);
    const auto granule_of = [&mesh](int64_t at) { return mesh.granules()[static_cast<size_t>(at)]; };
    if (granule_of(position) != granule_of(first)) return true;
  }
  return false;
}

Json parse_costs(const std::string& text) {
  if (text.size() > kLargestCosts)
    fail(Status::kInvalidArgument, "costs: a text of {} bytes, more than 1 MiB", text.size());
  try {
    return Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
      if (depth > kDeepestCosts) fail(Status::kInvalidArgument, "costs: nested deeper than {}", kDeepestCosts);
      return true;
    });
  } catch (const Json::parse_error& error) {
    fail(Status::kInvalidArgument, "costs: invalid JSON at byte {}", error.byte);
  } catch (const Json::exception&) {
    fail(Status::kInvalidArgument, "costs: a number of its JSON is too large");
  }
}

}  // namespace

PlanCosts::PlanCosts(const MeshShape& mesh, const std::optional<std::string>& text) {
  const PlainNumbers numbers;
  const Json json = text ? parse_costs(*text) : Json::object();
  Link all;
  double rate = kRate;
  const Json* outer = nullptr;
  const Json* axes = nullptr;
  for (const auto& [key, value] : costs_object(json, "the text").items()) {
    if (key == "alpha" || key == "beta") {
      (key == "alpha" ? all.alpha : all.beta) = costs_number(value, key, key == "alpha" ? kMostAlpha : kMostBeta);
    } else if (key == "rate") {
      rate = costs_number(value, key, kMostRate);
    } else if (key == "outer") {
      outer = &value;
    } else if (key == "axes") {
      axes = &costs_object(value, key);
    } else {
      fail(Status::kInvalidArgument, "costs: no cost is named \"{}\": alpha, beta, rate, outer and axes are",
           short_name(key));
    }
  }
  links_.assign(mesh.axis_count(), all);
  Link checked = all;
  if (outer != nullptr) read_link_costs(*outer, "outer", checked);
  for (size_t axis = 0; outer != nullptr && axis < links_.size(); ++axis) {
    if (crosses_granules(mesh, axis)) links_[axis] = checked;
  }
  if (axes != nullptr) {
    for (const auto& [name, value] : axes->items()) {
      const auto axis = mesh.find_axis(name);
      if (!axis) {
        fail(Status::kInvalidArgument, "costs: axes.{}: mesh \"{}\" has no such axis", short_name(name), mesh.name());
      }
      read_link_costs(value, fmt::format("axes.{}", name), links_[*axis]);
    }
  }
  Json told = Json::object();
  for (size_t axis = 0; axis < links_.size(); ++axis) {
    Link& link = links_[axis];
    link.start = static_cast<Picoseconds>(std::llround(link.alpha * 1e12));
    link.per_mebibyte = static_cast<uint64_t>(std::llround(link.beta * 1e12 * double{kMebibyte}));
    told[mesh.axis_name(axis)] = {{"alpha", link.alpha}, {"beta", link.beta}};
  }
  // No machine is slower; far below that, the number of picoseconds would overflow.
  if (rate > 0 && rate < 1000) fail(Status::kInvalidArgument, "costs: rate is {}, neither 0 nor at least 1000", rate);
  per_giga_ = rate == 0 ? 0 : static_cast<uint64_t>(std::llround(double{kGiga} / rate * 1e12));
  report_ = Json{{"rate", rate}, {"axes", std::move(told)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Picoseconds PlanCosts::transport(AxisSet axes, uint64_t bytes) const {
  uint64_t price = 0;
  for (const uint8_t axis : layout::axes_of(axes)) price = std::max(price, links_[axis].per_mebibyte);
  return priced(bytes, price, kMebibyte);
}

Picoseconds PlanCosts::exchange(AxisSet axes, uint64_t bytes) const {
  Picoseconds start = 0;
  for (const uint8_t axis : layout::axes_of(axes)) start = std::max(start, links_[axis].start);
  return saturating_sum(start, transport(axes, bytes));
}

Picoseconds PlanCosts::computing(uint64_t operations) const { return priced(operations, per_giga_, kGiga); }

}  // namespace distag::spmd
