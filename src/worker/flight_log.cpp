#include "worker/flight_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/cut_text.h"
#include "base/each_step.h"
#include "base/trace.h"

namespace distag {
namespace {

constexpr size_t kMostEnded = 24;
constexpr size_t kMostCalls = 16;
constexpr size_t kMostPasses = 4;
constexpr size_t kMostCollectives = 8;
constexpr size_t kMostWaitedFor = 4;
constexpr size_t kMostText = 96;

// Names come from other workers: a line of the log must stay a single line, and short.
std::string one_line(std::string_view text) {
  std::string clean(cut_to(text, kMostText));
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
  if (text.size() > kMostText) clean += "...";
  return clean;
}

std::string in_seconds(Nanos time) {
  return fmt::format("{:.3f} s", static_cast<double>(std::max<Nanos>(time, 0)) / static_cast<double>(kSecond));
}

std::string describe(const FlightEvent& event) {
  const std::string name = one_line(event.name);
  const std::string peer = one_line(event.peer);
  switch (event.category) {
    case TraceCategory::kCall:
      return fmt::format("call \"{}\" to \"{}\"", name, peer);
    case TraceCategory::kServed:
      return fmt::format("call \"{}\" of \"{}\"", name, peer);
    case TraceCategory::kCollective:
      return peer.empty() ? name : fmt::format("{} on line \"{}\"", name, peer);
    default:
      return peer.empty() ? name : fmt::format("{}, of \"{}\"", name, peer);
  }
}

std::string describe(const OpenCall& call) {
  const auto place = [&call](const char* way, const char* since) {
    return fmt::format("call \"{}\" {} \"{}\", {} {}", one_line(call.function), way, one_line(call.peer), since,
                       in_seconds(call.age));
  };
  switch (call.stage) {
    case OpenCall::Stage::kQueued:
      return place("to", "in the queue for");
    case OpenCall::Stage::kSent:
      return place("to", "not answered for");
    case OpenCall::Stage::kWaiting:
      return place("of", "waits to run here for");
    case OpenCall::Stage::kRunning:
      return place("of", "runs here for");
    case OpenCall::Stage::kDeferred:
      return place("of", "has put off its answer for");
  }
  return {};
}

std::string describe(const PassSnapshot& pass) {
  std::string text = pass.is_initiator ? "pass" : "pass of another";
  text += ", " + pass.stage;
  for (size_t i = 0; i < pass.waits_for.size() && i < kMostWaitedFor; ++i) {
    text += (i == 0 ? ", waits for " : "; ") + one_line(pass.waits_for[i]);
  }
  return text;
}

std::string describe(const WaitingCollective& collective) {
  std::string text = fmt::format("{} of mesh \"{}\"", one_line(collective.text), one_line(collective.mesh));
  if (!collective.line.empty()) text += fmt::format(" on line \"{}\"", one_line(collective.line));
  text += ", for " + in_seconds(collective.age);
  for (size_t i = 0; i < collective.waits_for.size() && i < kMostWaitedFor; ++i) {
    text += fmt::format("{} {}", i == 0 ? ", waits for rank" : ",", collective.waits_for[i]);
  }
  if (collective.waits_for.size() > kMostWaitedFor) text += " and more";
  return text;
}

template <typename Item>
void add_lines(std::string& text, const std::vector<Item>& items, size_t most) {
  for (size_t i = 0; i < items.size() && i < most; ++i) text += "\n  " + describe(items[i]);
  if (items.size() > most) text += "\n  and more of these";
}

}  // namespace

std::string describe_break(Nanos now, const std::vector<FlightEvent>& last, const UnderWay& under_way) {
  const auto broken =
      std::find_if(last.rbegin(), last.rend(), [](const FlightEvent& event) { return is_break(event.status); });
  std::string text = "the last calls, passes and collectives here";
  if (broken != last.rend()) {
    text = fmt::format("{} ended with {} after {}", describe(*broken), status_name(broken->status),
                       in_seconds(broken->end - broken->begin));
  }
  const bool is_idle = under_way.calls.empty() && under_way.passes.empty() && under_way.collectives.empty();
  text += is_idle ? "\nnothing else is under way here" : "\nunder way here:";
  add_lines(text, under_way.collectives, kMostCollectives);
  add_lines(text, under_way.passes, kMostPasses);
  add_lines(text, under_way.calls, kMostCalls);
  text += "\nended here, the latest first:";
  size_t count = 0;
  for (auto event = last.rbegin(); event != last.rend() && count < kMostEnded; ++event, ++count) {
    text += fmt::format("\n  {} ago: {}, {} after {}", in_seconds(now - event->end), describe(*event),
                        status_name(event->status), in_seconds(event->end - event->begin));
  }
  return text;
}

void FlightLog::tell_soon() noexcept {
  if (!environment_.log.enabled(LogLevel::kWarning) || is_posted_.exchange(true)) return;
  environment_.loop.post_or_drop(place_, [self = shared_from_this()] {
    self->is_posted_ = false;
    EachStep each;  // without memory for the text, the report still has the events
    each([&self] { self->tell(); });
  });
}

void FlightLog::tell() {
  assert_on_loop(environment_.loop);
  // The broken one may lie behind many that ended at the same time.
  constexpr size_t kMostSeen = 100;
  const Nanos now = environment_.loop.now();
  throttle_.write_made(environment_.log, LogLevel::kWarning, now, [this, now] {
    return describe_break(now, environment_.recorder.last(kMostSeen), environment_.under_way());
  });
}

}  // namespace distag
