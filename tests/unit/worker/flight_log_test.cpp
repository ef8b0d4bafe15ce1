#include "worker/flight_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace distag {
namespace {

FlightEvent event_of(TraceCategory category, const char* name, const char* peer, Nanos end,
                     Status status = Status::kOk) {
  FlightEvent event;
  event.category = category;
  event.status = status;
  event.begin = end - 250 * kMillisecond;
  event.end = end;
  event.name = name;
  event.peer = peer;
  return event;
}

OpenCall open_call(OpenCall::Stage stage, const char* function, const char* peer) {
  OpenCall call{};
  call.stage = stage;
  call.function = function;
  call.peer = peer;
  call.age = 1500 * kMillisecond;
  return call;
}

TEST(FlightLogTest, NamesTheEndWhatIsUnderWayAndTheLastEvents) {
  UnderWay under_way;
  under_way.calls = {open_call(OpenCall::Stage::kSent, "slow", "w1"),
                     open_call(OpenCall::Stage::kRunning, "served", "w2")};
  under_way.collectives = {{"data", "", "all_reduce(sum, float32[2])", 2 * kSecond, {1, 2}}};
  PassSnapshot pass;
  pass.is_initiator = true;
  pass.stage = "running";
  pass.waits_for = {"worker \"w1\" (rank 1)"};
  under_way.passes = {pass};
  const std::vector<FlightEvent> last = {event_of(TraceCategory::kServed, "earlier", "w2", 8 * kSecond),
                                         event_of(TraceCategory::kCall, "hold", "w1", 9 * kSecond, Status::kDeadline),
                                         event_of(TraceCategory::kCollective, "barrier()", "micro", 10 * kSecond),
                                         event_of(TraceCategory::kPass, "pass", "", 10 * kSecond, Status::kCancelled)};
  EXPECT_EQ(describe_break(10 * kSecond, last, under_way),
            "call \"hold\" to \"w1\" ended with DEADLINE after 0.250 s\n"
            "under way here:\n"
            "  all_reduce(sum, float32[2]) of mesh \"data\", for 2.000 s, waits for rank 1, 2\n"
            "  pass, running, waits for worker \"w1\" (rank 1)\n"
            "  call \"slow\" to \"w1\", not answered for 1.500 s\n"
            "  call \"served\" of \"w2\", runs here for 1.500 s\n"
            "ended here, the latest first:\n"
            "  0.000 s ago: pass, CANCELLED after 0.250 s\n"
            "  0.000 s ago: barrier() on line \"micro\", OK after 0.250 s\n"
            "  1.000 s ago: call \"hold\" to \"w1\", DEADLINE after 0.250 s\n"
            "  2.000 s ago: call \"earlier\" of \"w2\", OK after 0.250 s");
}

TEST(FlightLogTest, IsBoundedAndOneLineEach) {
  const std::string evil(4000, '\n');
  UnderWay under_way;
  for (int i = 0; i < 300; ++i) {
    under_way.calls.push_back(open_call(OpenCall::Stage::kDeferred, evil.c_str(), evil.c_str()));
    under_way.collectives.push_back({evil, evil, evil, kSecond, std::vector<int32_t>(1000, 2000000000)});
    PassSnapshot pass;
    pass.stage = "searching";
    pass.waits_for.assign(10, evil);
    under_way.passes.push_back(pass);
  }
  const std::vector<FlightEvent> last(
      1000, event_of(TraceCategory::kCall, evil.c_str(), evil.c_str(), kSecond, Status::kDisconnected));
  const std::string text = describe_break(kSecond, last, under_way);
  EXPECT_LT(text.size(), 16u << 10);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 64);
}

}  // namespace
}  // namespace distag
