#include "worker/report.h"

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "wire/message.h"
#include "worker/report_words.h"

namespace distag {
namespace {

using Json = nlohmann::ordered_json;

std::string describe(const Id& id) { return fmt::format("{:016x}:{}", id.maker, id.counter); }

Json to_json(const WorkerSnapshot::Member& member) {
  const Peer& peer = member.record.peer;
  Json json{{"name", peer.name},
            {"rank", peer.rank},
            {"incarnation", in_hex(peer.incarnation)},
            {"endpoint", peer.endpoint},
            {"state", state_word(member.record.state)},
            {"connected", member.is_connected}};
  if (!member.gone.empty()) json["why"] = member.gone;
  json["lane"] = nullptr;
  if (!member.lane.empty()) json["lane"] = member.lane;
  return json;
}

Json to_json(const OpenCall& call) {
  const bool is_made = call.stage == OpenCall::Stage::kQueued || call.stage == OpenCall::Stage::kSent;
  Json json{{"made_here", is_made},      {"function", call.function}, {"label", call.label},
            {"peer", call.peer},         {"rank", call.peer_rank},    {"state", stage_word(call.stage)},
            {"age_ms", in_ms(call.age)}, {"time_left_ms", nullptr},   {"context", nullptr}};
  if (call.time_left != kForever) json["time_left_ms"] = in_ms(call.time_left);
  if (call.context) json["context"] = describe(call.context);
  return json;
}

Json to_json(const WaitingCollective& collective) {
  return {{"mesh", collective.mesh},
          {"line", collective.line},
          {"text", collective.text},
          {"age_ms", in_ms(collective.age)},
          {"waits_for", collective.waits_for}};
}

// The peer of a collective is its line.
Json to_json(const FlightEvent& event, Nanos now) {
  const bool is_done = event.status == Status::kOk;
  Json json{{"kind", category_name(event.category)},         {"name", event.name},  {"peer", event.peer},
            {"state", is_done ? "done" : "failed"},          {"error", nullptr},    {"age_ms", in_ms(now - event.end)},
            {"duration_ms", in_ms(event.end - event.begin)}, {"bytes", event.bytes}};
  if (!is_done) json["error"] = status_name(event.status);
  return json;
}

Json to_json(const PassSnapshot& pass) {
  return {{"pass", describe(pass.pass)},
          {"begun_here", pass.is_initiator},
          {"mode", pass.is_fast ? "fast" : "smart"},
          {"state", pass.stage},
          {"waits_for", pass.waits_for}};
}

Json describe_counts(uint64_t number, const ContextInfo& info) {
  return {{"id", in_hex(number)},
          {"send_count", info.send_count},
          {"recv_count", info.recv_count},
          {"gradient_count", info.gradient_count},
          {"pass_count", info.pass_count}};
}

Json to_json(const ContextSnapshot& context) {
  Json json = describe_counts(context.record->number(), context.record->counts());
  json["global_id"] = describe(context.record->id());
  json["creator"] = context.creator;
  json["made_here"] = context.is_own;
  json["known_ranks"] = context.known_ranks;
  json["passes"] = Json::array();
  for (const PassSnapshot& pass : context.passes) json["passes"].push_back(to_json(pass));
  return json;
}

Json to_json(const OwnedValueInfo& value) {
  return {{"id", in_hex(value.id)}, {"made_by", value.origin}, {"state", value.state}, {"holders", value.holders}};
}

Json to_json(const LaneReport& lane) {
  Json json{{"on", lane.is_on},
            {"open", lane.open},
            {"refused", lane.refused},
            {"sleeps", lane.sleeps},
            {"wakes_sent", lane.wakes_sent},
            {"wakes_received", lane.wakes_received},
            {"loans", lane.loans},
            {"loans_out", lane.loans_out},
            {"bytes_out", lane.bytes_out}};
  if (!lane.is_on) json["why"] = lane.why_off;
  return json;
}

Json to_json(const SocketReport& sockets) {
  if (sockets.engine.empty()) return nullptr;
  Json json{{"engine", sockets.engine}};
  if (!sockets.version.empty()) json["version"] = sockets.version;
  return json;
}

template <typename Item>
Json to_list(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(to_json(item));
  return list;
}

const char* kind_text(autograd::Node::Kind kind) {
  switch (kind) {
    case autograd::Node::Kind::kFunction:
      return "function";
    case autograd::Node::Kind::kLeaf:
      return "leaf";
    case autograd::Node::Kind::kSend:
      return "send";
    case autograd::Node::Kind::kRecv:
      return "recv";
  }
  return "unknown";
}

// Numbers the nodes that can be reached from sends, in the order of the walk.
class GraphWalk {
 public:
  size_t number(const std::shared_ptr<autograd::Node>& node) {
    const auto [found, is_new] = numbers_.try_emplace(node.get(), nodes_.size());
    if (is_new) nodes_.push_back(node.get());
    return found->second;
  }

  // Writes the numbered nodes and all behind them; an edge leads from a node to the one that gets its gradient.
  void write(Json& json) {
    Json nodes = Json::array();
    Json edges = Json::array();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const autograd::Node& node = *nodes_[i];
      nodes.push_back({{"node", i}, {"kind", kind_text(node.kind())}, {"name", node.name()}});
      for (const autograd::Edge& edge : node.next()) {
        if (edge.node != nullptr) edges.push_back({{"from", i}, {"to", number(edge.node)}, {"slot", edge.slot}});
      }
    }
    json["nodes"] = std::move(nodes);
    json["edges"] = std::move(edges);
  }

 private:
  std::unordered_map<const autograd::Node*, size_t> numbers_;
  std::vector<const autograd::Node*> nodes_;
};

// Text that came from elsewhere may be invalid UTF-8: such bytes are replaced.
std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string write_report(const WorkerSnapshot& worker) {
  Json events = Json::array();
  for (const EventLog::Event& event : worker.events) {
    events.push_back({{"age_ms", in_ms(worker.now - event.when)}, {"text", event.text}});
  }
  Json last = Json::array();
  for (const FlightEvent& event : worker.last) last.push_back(to_json(event, worker.now));
  Json report{{"worker",
               {{"name", worker.name},
                {"rank", worker.rank},
                {"incarnation", in_hex(worker.incarnation)},
                {"state", worker.state},
                {"protocol", wire::kProtocolVersion}}},
              {"members", to_list(worker.members)},
              {"lane", to_json(worker.lane)},
              {"sockets", to_json(worker.sockets)},
              {"calls", to_list(worker.calls)},
              {"collectives", to_list(worker.collectives)},
              {"contexts", to_list(worker.contexts)},
              {"rrefs", to_list(worker.rrefs)},
              {"events", std::move(events)},
              {"last", std::move(last)}};
  return dump(report);
}

std::string write_report(const ContextSnapshot& context) {
  Json report = to_json(context);
  GraphWalk walk;
  Json sends = Json::array();
  Json never_fired = Json::array();
  for (const SendSnapshot& send : context.sends) {
    sends.push_back({{"call", send.call},
                     {"is_answer", send.is_answer},
                     {"peer", send.peer},
                     {"fired", send.has_fired},
                     {"node", walk.number(send.node)}});
    if (!send.has_fired) never_fired.push_back(send.node->name());
  }
  report["sends"] = std::move(sends);
  report["never_fired"] = std::move(never_fired);
  walk.write(report);
  return dump(report);
}

std::string write_local_report(Context& context) { return dump(describe_counts(context.id(), context.info())); }

}  // namespace distag
