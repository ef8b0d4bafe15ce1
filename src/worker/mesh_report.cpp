#include "worker/mesh_report.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace distag {
namespace {

using Json = nlohmann::ordered_json;

Json ranks_of(const layout::MeshShape& shape, const std::vector<int64_t>& positions) {
  Json ranks = Json::array();
  for (const int64_t position : positions) ranks.push_back(shape.ranks()[static_cast<size_t>(position)]);
  return ranks;
}

Json to_json(const layout::MeshShape& shape, const Mesh* mesh, const MeshSnapshot::Line& line) {
  Json open = Json::array();
  for (const MeshSnapshot::OpenCall& call : line.open) {
    open.push_back({{"call", call.number},
                    {"text", call.text},
                    {"age_ms", static_cast<double>(call.age) / static_cast<double>(kMillisecond)},
                    {"waits_for", ranks_of(shape, call.waits_for)}});
  }
  Json members = Json::array();
  members.push_back({{"rank", shape.ranks()[static_cast<size_t>(mesh->position())]}, {"call", line.last}});
  for (const auto& [position, call] : line.known) {
    members.push_back({{"rank", shape.ranks()[static_cast<size_t>(position)]}, {"call", call}});
  }
  return {{"name", line.name}, {"call", line.last}, {"text", line.text}, {"open", open}, {"members", members}};
}

Json to_json(const MeshStats& stats) {
  const std::pair<const char*, const Count&> all[] = {{"calls", stats.calls},
                                                      {"all_reduces", stats.all_reduces},
                                                      {"all_gathers", stats.all_gathers},
                                                      {"reduce_scatters", stats.reduce_scatters},
                                                      {"all_to_alls", stats.all_to_alls},
                                                      {"broadcasts", stats.broadcasts},
                                                      {"moves", stats.moves},
                                                      {"hidden_moves", stats.hidden_moves},
                                                      {"bytes_sent", stats.bytes_sent},
                                                      {"bytes_received", stats.bytes_received},
                                                      {"bytes_held", stats.bytes_held},
                                                      {"bytes_held_max", stats.bytes_held_max}};
  Json json = Json::object();
  for (const auto& [name, count] : all) json[name] = uint64_t{count};
  return json;
}

Json describe(const layout::MeshShape& shape) {
  Json json{{"name", shape.name()}, {"axes", Json::array()}, {"ranks", shape.ranks()}, {"granules", shape.granules()}};
  for (size_t axis = 0; axis < shape.axis_count(); ++axis) {
    json["axes"].push_back({{"name", shape.axis_name(axis)}, {"size", shape.size(axis)}});
  }
  return json;
}

}  // namespace

std::string write_report(const layout::MeshShape& shape, const Mesh* mesh, const MeshSnapshot& snapshot) {
  Json json{{"mesh", describe(shape)}};
  json["mesh"]["position"] = mesh == nullptr ? -1 : mesh->position();
  json["mesh"]["ended"] = nullptr;
  if (snapshot.ended) json["mesh"]["ended"] = snapshot.ended->message();
  json["lines"] = Json::array();
  for (const MeshSnapshot::Line& line : snapshot.lines) json["lines"].push_back(to_json(shape, mesh, line));
  json["stats"] = to_json(mesh == nullptr ? MeshStats() : mesh->stats());
  json["tensors"] = Json::array();
  json["moves"] = Json::array();
  for (const MeshSnapshot::Move& move : snapshot.moves) {
    json["moves"].push_back({{"op", move.op},
                             {"specs", move.specs},
                             {"kind", move.kind},
                             {"axes", move.axes},
                             {"bytes", move.bytes},
                             {"why", move.why}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace distag
