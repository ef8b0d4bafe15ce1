#include "base/trace.h"

#include <gtest/gtest.h>

#include <vector>

namespace distag {
namespace {

struct TraceTest : ::testing::Test {
  std::vector<TakenTraceEvent> take() {
    taken.reserve(Trace::kBufferSize);
    trace.take(taken, dropped);
    std::vector<TakenTraceEvent> events;
    for (std::string_view rest = taken; !rest.empty();) events.push_back(take_first(rest));
    return events;
  }

  Parker wake;
  Trace trace;
  std::string taken;
  uint64_t dropped = 0;
};

TEST_F(TraceTest, KeepsNothingBeforeItIsOpenAndAfterItsClose) {
  trace.add({}, "early");
  trace.open(wake);
  trace.add({}, "kept");
  trace.close();
  trace.add({}, "late");
  trace.add_instant(TraceCategory::kMember, "late");
  { const TraceScope scope(trace, TraceCategory::kRun, "late"); }
  const auto events = take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "kept");
  EXPECT_EQ(dropped, 0u);
}

TEST_F(TraceTest, GivesEventsInTheirOrderWithTheirTexts) {
  trace.open(wake);
  TraceEvent event;
  event.kind = TraceEvent::Kind::kSpan;
  event.category = TraceCategory::kPass;
  event.begin = 5;
  event.end = 9;
  event.id = {7, 8};
  event.bytes = 3;
  trace.add(event, "first", "peer");
  trace.add_instant(TraceCategory::kMember, std::string(1000, 'x'));
  const auto events = take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "first");
  EXPECT_EQ(events[0].peer, "peer");
  EXPECT_EQ(events[0].event.category, TraceCategory::kPass);
  EXPECT_EQ(events[0].event.end - events[0].event.begin, 4);
  EXPECT_EQ(events[0].event.id, (Id{7, 8}));
  EXPECT_EQ(events[0].event.thread, current_thread_number());
  EXPECT_EQ(events[1].name, std::string(255, 'x'));
  EXPECT_TRUE(take().empty());
}

TEST_F(TraceTest, CountsWhatItHasNoRoomForAndWakesItsWriter) {
  trace.open(wake);
  const std::string name(200, 'n');
  size_t count = 0;
  for (; count < 100000; ++count) trace.add({}, name);
  EXPECT_TRUE(wake.park(SteadyClock().now()));
  const size_t kept = take().size();
  EXPECT_GT(kept, Trace::kBufferSize / 512);
  EXPECT_LE(taken.size(), Trace::kBufferSize);
  EXPECT_EQ(kept + dropped, count);
  trace.add({}, name);
  EXPECT_EQ(take().size(), 1u);
  EXPECT_EQ(dropped, 0u);
}

TEST_F(TraceTest, KeepsTheTraceIdOfTheHostWithTheEventsThatHaveOne) {
  const auto parent = TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  trace.open(wake);
  trace.add_ended({}, "call", "peer", parent->trace_id());
  trace.add({}, "none");
  {
    TraceScope scope(trace, TraceCategory::kRun, "run", "w0");
    scope.set_trace_parent(parent.get());
    const TraceScope other(trace, TraceCategory::kRun, "other");
  }
  const auto events = take();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].peer, "peer");
  EXPECT_EQ(events[0].trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(events[1].trace_id, "");
  EXPECT_EQ(events[2].trace_id, "");
  EXPECT_EQ(events[3].name, "run");
  EXPECT_EQ(events[3].trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
}

TEST_F(TraceTest, AScopeKeepsTheNamesOfItsBegin) {
  trace.open(wake);
  {
    std::string name = "function";
    TraceScope scope(trace, TraceCategory::kRun, name, "w0");
    scope.set_flow(TraceEvent::Flow::kIn, TraceCategory::kCall, {1, 2});
    name = "gone";
  }
  const auto events = take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "function");
  EXPECT_EQ(events[0].peer, "w0");
  EXPECT_EQ(events[0].event.flow, TraceEvent::Flow::kIn);
  EXPECT_LE(events[0].event.begin, events[0].event.end);
}

}  // namespace
}  // namespace distag
