// Reports in JSON, of which every text is of others. Input: the texts, a line each, and numbers. A strict parser has to
// read each report, and to find the texts and numbers that went in; of a text that is no UTF-8 all that is ASCII.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "fuzz/input.h"
#include "fuzz/refusal.h"
#include "layout/mesh_shape.h"
#include "tensor/utf8.h"
#include "worker/mesh_report.h"
#include "worker/report.h"

namespace {

using namespace distag;
using fuzz::check;
using fuzz::Input;
using Json = nlohmann::json;

std::string ascii_of(const std::string& text) {
  std::string ascii;
  std::copy_if(text.begin(), text.end(), std::back_inserter(ascii), [](char c) { return c > 0; });
  return ascii;
}

void check_text(const Json& json, const std::string& text) {
  const auto& written = json.get_ref<const std::string&>();
  if (is_valid_utf8(text)) return check(written == text);
  check(is_valid_utf8(written) && written != text && ascii_of(written) == ascii_of(text));
}

void check_texts(const Json& json, const std::vector<std::string>& texts) {
  check(json.size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) check_text(json[i], texts[i]);
}

// Strictly, and without control characters in it but ends of line.
Json parse(const std::string& report) {
  check(std::none_of(report.begin(), report.end(), [](char c) { return c >= 0 && c < ' ' && c != '\n'; }));
  return Json::parse(report);
}

std::vector<std::string> lines(Input& input) {
  std::vector<std::string> texts(input.below(3));
  for (std::string& text : texts) text = input.line();
  return texts;
}

uint64_t bits(Input& input) { return static_cast<uint64_t>(input.integer()); }

// A node of a graph; its edges lead to nodes that are there already.
class NamedNode final : public autograd::Node {
 public:
  NamedNode(std::string name, std::vector<autograd::Edge> next)
      : Node(Kind::kSend, std::move(next), 1), name_(std::move(name)) {}
  std::string name() const override { return name_; }

 private:
  const std::string name_;
};

std::vector<SendSnapshot> sends_of(Input& input) {
  std::vector<SendSnapshot> sends;
  for (size_t left = input.below(5); left > 0; --left) {
    std::vector<autograd::Edge> next;
    for (size_t edges = input.below(3); edges > 0 && !sends.empty(); --edges) {
      next.push_back({sends[input.below(sends.size())].node, static_cast<uint32_t>(input.byte())});
    }
    SendSnapshot send{input.line(), input.flag(), input.line(), input.flag(), nullptr};
    send.node = std::make_shared<NamedNode>(input.line(), std::move(next));
    sends.push_back(std::move(send));
  }
  return sends;
}

ContextSnapshot context_of(Input& input) {
  ContextSnapshot context;
  context.record = std::make_shared<ContextRecord>(Id{bits(input), bits(input)}, bits(input));
  context.creator = input.line();
  context.known_ranks = {input.byte()};
  context.passes.push_back({{bits(input), 1}, input.flag(), input.flag(), input.line(), lines(input)});
  context.sends = sends_of(input);
  return context;
}

void check_context(const Json& json, const ContextSnapshot& context) {
  check_text(json.at("creator"), context.creator);
  check(json.at("global_id") == fmt::format("{:016x}:{}", context.record->id().maker, context.record->id().counter));
  check(json.at("known_ranks") == Json(context.known_ranks));
  check(json.at("passes").size() == context.passes.size());
  for (size_t i = 0; i < context.passes.size(); ++i) {
    check_text(json["passes"][i].at("state"), context.passes[i].stage);
    check_texts(json["passes"][i].at("waits_for"), context.passes[i].waits_for);
  }
}

void check_graph(const ContextSnapshot& context) {
  const Json json = parse(write_report(context));
  check_context(json, context);
  check(json.at("sends").size() == context.sends.size());
  std::vector<std::string> never_fired;
  size_t edges = 0;
  for (size_t i = 0; i < context.sends.size(); ++i) {
    const SendSnapshot& send = context.sends[i];
    const Json& written = json["sends"][i];
    check_text(written.at("call"), send.call);
    check_text(written.at("peer"), send.peer);
    check(written.at("fired") == send.has_fired && written.at("is_answer") == send.is_answer);
    check_text(json.at("nodes").at(written.at("node").get<size_t>()).at("name"), send.node->name());
    if (!send.has_fired) never_fired.push_back(send.node->name());
    edges += send.node->next().size();
  }
  check_texts(json.at("never_fired"), never_fired);
  check(json.at("nodes").size() == context.sends.size() && json.at("edges").size() == edges);
}

WorkerSnapshot worker_of(Input& input) {
  WorkerSnapshot worker;
  worker.name = input.line();
  worker.rank = input.byte();
  worker.incarnation = bits(input);
  worker.state = input.line();
  worker.lane.is_on = input.flag();
  worker.lane.why_off = input.line();
  for (size_t left = input.below(3); left > 0; --left) {
    const Peer peer{input.byte(), input.line(), input.line(), bits(input), 1, 0};
    worker.members.push_back(
        {{peer, static_cast<Standing>(1 + input.below(4))}, input.flag(), input.line(), input.line()});
  }
  for (size_t left = input.below(3); left > 0; --left) {
    worker.calls.push_back({static_cast<OpenCall::Stage>(input.below(5)),
                            input.line(),
                            input.line(),
                            input.line(),
                            input.byte(),
                            {bits(input), 1},
                            input.integer(),
                            input.integer()});
  }
  for (size_t left = input.below(3); left > 0; --left) {
    worker.rrefs.push_back({bits(input), input.line(), "made", lines(input)});
  }
  if (input.flag()) worker.contexts.push_back(context_of(input));
  for (const std::string& text : lines(input)) worker.events.push_back({0, text});
  return worker;
}

void check_worker(const WorkerSnapshot& worker) {
  const Json json = parse(write_report(worker));
  check_text(json.at("worker").at("name"), worker.name);
  check_text(json.at("worker").at("state"), worker.state);
  check(json["worker"].at("rank") == worker.rank);
  check(json["worker"].at("incarnation") == fmt::format("{:#018x}", worker.incarnation));
  if (!worker.lane.is_on) check_text(json.at("lane").at("why"), worker.lane.why_off);
  check(json.at("members").size() == worker.members.size() && json.at("calls").size() == worker.calls.size());
  for (size_t i = 0; i < worker.members.size(); ++i) {
    const WorkerSnapshot::Member& member = worker.members[i];
    const Json& written = json["members"][i];
    check_text(written.at("name"), member.record.peer.name);
    check_text(written.at("endpoint"), member.record.peer.endpoint);
    check(written.contains("why") != member.gone.empty() && written.at("lane").is_null() == member.lane.empty());
    if (!member.gone.empty()) check_text(written["why"], member.gone);
    if (!member.lane.empty()) check_text(written["lane"], member.lane);
  }
  for (size_t i = 0; i < worker.calls.size(); ++i) {
    const Json& written = json["calls"][i];
    check_text(written.at("function"), worker.calls[i].function);
    check_text(written.at("label"), worker.calls[i].label);
    check_text(written.at("peer"), worker.calls[i].peer);
  }
  check(json.at("rrefs").size() == worker.rrefs.size() && json.at("events").size() == worker.events.size());
  for (size_t i = 0; i < worker.rrefs.size(); ++i) {
    check_text(json["rrefs"][i].at("made_by"), worker.rrefs[i].origin);
    check_texts(json["rrefs"][i].at("holders"), worker.rrefs[i].holders);
  }
  for (size_t i = 0; i < worker.events.size(); ++i) check_text(json["events"][i].at("text"), worker.events[i].text);
  check(json.at("contexts").size() == worker.contexts.size());
  for (size_t i = 0; i < worker.contexts.size(); ++i) check_context(json["contexts"][i], worker.contexts[i]);
}

// The names of a mesh come from the host, and may be empty.
void check_mesh(Input& input) {
  layout::MeshRequest request;
  request.name = input.line();
  request.shape = {2, 1};
  request.axis_names = {input.line(), input.line()};
  request.ranks = {0, 1};
  std::optional<layout::MeshShape> shape;
  if (!fuzz::is_taken([&] { shape = layout::MeshShape::make(request); })) return;
  MeshSnapshot snapshot;
  if (input.flag()) snapshot.ended = Error(Status::kDisconnected, input.line());
  snapshot.moves.push_back({input.line(), input.line(), input.line(), input.line(), bits(input), input.line()});
  const Json json = parse(write_report(*shape, nullptr, snapshot));
  check_text(json.at("mesh").at("name"), shape->name());
  check_text(json["mesh"].at("axes").at(0).at("name"), shape->axis_name(0));
  check(json["mesh"].at("ended").is_null() != snapshot.ended.has_value());
  if (snapshot.ended) check_text(json["mesh"]["ended"], snapshot.ended->message());
  const MeshSnapshot::Move& move = snapshot.moves.front();
  check_text(json.at("moves").at(0).at("op"), move.op);
  check_text(json["moves"][0].at("specs"), move.specs);
  check_text(json["moves"][0].at("why"), move.why);
  check(json["moves"][0].at("bytes") == move.bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  switch (input.below(3)) {
    case 0:
      check_worker(worker_of(input));
      break;
    case 1:
      check_graph(context_of(input));
      break;
    default:
      check_mesh(input);
  }
  return 0;
}
