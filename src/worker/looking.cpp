// The state of a worker, for people who look at a running group: its calls and its waits; and the state of all members.

#include "worker/looking.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/cut_text.h"
#include "base/plain_numbers.h"
#include "base/process.h"
#include "worker/report_words.h"
#include "worker/worker.h"

namespace distag {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostCallsTold = 64;
constexpr size_t kMostRanks = 64;
constexpr size_t kMostTexts = 8;  // of a pass
constexpr size_t kLongestTextTold = 200;
// Limits for the answer of another worker, which may be any text.
constexpr size_t kMostAnswerBytes = 128 << 10;
constexpr int kMostAnswerDepth = 8;
constexpr Nanos kMostGroupTime = 10 * kSecond;

// Shortens a text that other workers may have made.
std::string cut(std::string_view text) { return std::string(cut_to(text, kLongestTextTold)); }

Json as_json(const OpenCall& call) {
  const bool is_made = call.stage == OpenCall::Stage::kQueued || call.stage == OpenCall::Stage::kSent;
  Json json{{"made_here", is_made},      {"function", cut(call.function)}, {"label", cut(call.label)},
            {"peer", call.peer},         {"rank", call.peer_rank},         {"state", stage_word(call.stage)},
            {"age_ms", in_ms(call.age)}, {"time_left_ms", nullptr},        {"within", nullptr}};
  if (call.time_left != kForever) json["time_left_ms"] = in_ms(call.time_left);
  if (!call.within.empty()) json["within"] = cut(call.within);
  return json;
}

Json as_json(std::vector<int32_t> ranks) {
  if (ranks.size() > kMostRanks) ranks.resize(kMostRanks);
  return ranks;
}

std::string print(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Checks the answer of another worker, which goes into the report of the group unchanged.
bool is_answer(const std::string& text) {
  if (text.size() > kMostAnswerBytes || text.empty() || text.front() != '{') return false;
  int depth = 0;
  bool is_in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_in_text && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      is_in_text = !is_in_text;
    } else if (!is_in_text && (text[i] == '{' || text[i] == '[')) {
      if (++depth > kMostAnswerDepth) return false;
    } else if (!is_in_text && (text[i] == '}' || text[i] == ']')) {
      --depth;
    }
  }
  const PlainNumbers numbers;
  return Json::accept(text);
}

Json describe_worker(const WorkerLook& look) {
  Json worker{{"name", look.name},
              {"rank", look.rank},
              {"world_size", look.world_size},
              {"job", look.job},
              {"state", look.state},
              {"incarnation", in_hex(look.incarnation)},
              {"process", process_id()},
              {"host", look.host},
              {"age_ms", in_ms(look.age)},
              {"executor", look.is_pumped ? "host" : "pool"},
              {"tasks_waiting", look.tasks_waiting},
              {"in_task", nullptr}};
  if (look.is_pumped) worker["in_task"] = look.is_in_task;
  return worker;
}

Json describe_waits(const WorkerLook& look) {
  Json waits = Json::array();
  for (const PassSnapshot& pass : look.passes) {
    if (pass.waits_for.empty()) continue;
    Json texts = Json::array();
    for (size_t i = 0; i < std::min(pass.waits_for.size(), kMostTexts); ++i) texts.push_back(cut(pass.waits_for[i]));
    waits.push_back({{"kind", "pass"},
                     {"what", fmt::format("backward pass ({})", pass.stage)},
                     {"begun_here", pass.is_initiator},
                     {"texts", std::move(texts)},
                     {"ranks", Json::array()},
                     {"age_ms", in_ms(pass.age)}});
  }
  for (const WaitingCollective& call : look.collectives) {
    waits.push_back({{"kind", "collective"},
                     {"what", cut(call.text + " of mesh \"" + call.mesh + "\"")},
                     {"ranks", as_json(call.waits_for)},
                     {"age_ms", in_ms(call.age)}});
  }
  for (const std::vector<int32_t>& ranks : look.gatherings) {
    waits.push_back({{"kind", "gathering"}, {"what", "all_gather"}, {"ranks", as_json(ranks)}, {"age_ms", nullptr}});
  }
  return waits;
}

}  // namespace

// Leaves out calls if the text would be longer than other workers accept.
std::string write_look(const WorkerLook& look) {
  for (size_t most = kMostCallsTold;; most /= 2) {
    Json calls = Json::array();
    for (const OpenCall& call : look.calls) {
      if (calls.size() == most) break;
      calls.push_back(as_json(call));
    }
    std::string text = print({{"worker", describe_worker(look)},
                              {"calls_open", look.calls_open},
                              {"calls", std::move(calls)},
                              {"waits", describe_waits(look)}});
    if (text.size() <= kMostAnswerBytes || most == 0) return text;
  }
}

void GroupReport::take(size_t place, const Error* error, const std::string& text) {
  assert_on_loop(loop_);
  Member& member = members_[place];
  if (error != nullptr) {
    set_silent(place, error->message());
  } else if (!is_answer(text)) {
    member.silent = "its answer is no report";
  } else {
    member.report = text;
  }
}

void GroupReport::set_silent(size_t place, const std::string& why) {
  assert_on_loop(loop_);
  members_[place].silent = cut(why);
}

void GroupReport::end_one(Future<std::string>& done) {
  assert_on_loop(loop_);
  if (--open_ == 0) done.complete(write());
}

std::string GroupReport::write() const {
  std::string text = "{\"asked\":" + print(asked_) + ",\"members\":[";
  for (const Member& member : members_) {
    Json head{{"name", member.name},
              {"rank", member.rank},
              {"incarnation", in_hex(member.incarnation)},
              {"state", member.state},
              {"silent", nullptr}};
    if (member.report.empty()) head["silent"] = member.silent;
    std::string begin = print(head);
    begin.pop_back();  // the brace at its end
    text += (&member == members_.data() ? "" : ",") + begin + ",\"report\":";
    text += (member.report.empty() ? "null" : member.report) + "}";
  }
  return text + "]}";
}

std::shared_ptr<Future<std::string>> answer_question(Worker& worker, const std::string& question) {
  constexpr std::string_view kGroup = "group ";
  if (question == "look") {
    auto now = Future<std::string>::make();
    now->complete(worker.look());
    return now;
  }
  if (!question.starts_with(kGroup)) return nullptr;
  int64_t milliseconds = 0;
  const char* const end = question.data() + question.size();
  const auto [rest, error] = std::from_chars(question.data() + kGroup.size(), end, milliseconds);
  if (error != std::errc() || rest != end || milliseconds < 0) return nullptr;
  return worker.fetch_group_report(std::min(milliseconds, kMostGroupTime / kMillisecond) * kMillisecond);
}

}  // namespace distag
