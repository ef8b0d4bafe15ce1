#include "base/flight_recorder.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/trace.h"

namespace distag {
namespace {

TraceEvent event_at(Nanos begin, Nanos end, Status status = Status::kOk) {
  TraceEvent event;
  event.category = TraceCategory::kServed;
  event.status = status;
  event.begin = begin;
  event.end = end;
  event.bytes = 7;
  return event;
}

TEST(FlightRecorderTest, KeepsWhatItIsToldOfAnEvent) {
  FlightRecorder recorder;
  EXPECT_TRUE(recorder.last(10).empty());
  recorder.add(event_at(3, 5, Status::kDeadline), "function", "w1");
  const auto events = recorder.last(10);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].category, TraceCategory::kServed);
  EXPECT_EQ(events[0].status, Status::kDeadline);
  EXPECT_EQ(events[0].begin, 3);
  EXPECT_EQ(events[0].end, 5);
  EXPECT_EQ(events[0].bytes, 7u);
  EXPECT_EQ(events[0].name, "function");
  EXPECT_EQ(events[0].peer, "w1");
}

TEST(FlightRecorderTest, KeepsTheLastThousandInTheirOrder) {
  FlightRecorder recorder;
  for (Nanos i = 0; i < 2345; ++i) recorder.add(event_at(i, i), std::to_string(i), "");
  EXPECT_EQ(recorder.count(), 2345u);
  const auto events = recorder.last(5000);
  ASSERT_EQ(events.size(), FlightRecorder::kMost);
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].name, std::to_string(1345 + i));
  const auto few = recorder.last(2);
  ASSERT_EQ(few.size(), 2u);
  EXPECT_EQ(few[0].name, "2343");
  EXPECT_EQ(few[1].name, "2344");
  EXPECT_TRUE(recorder.last(0).empty());
}

TEST(FlightRecorderTest, CutsLongNamesBetweenCharactersAndLeavesRoomForThePeer) {
  FlightRecorder recorder;
  recorder.add({}, std::string(300, 'n'), std::string(300, 'p'));
  recorder.add({}, std::string(300, 'n'), "w1");
  recorder.add({}, "f", std::string(300, 'p'));
  recorder.add({}, std::string(95, 'n') + "\xc3\xa9", "");
  const auto events = recorder.last(4);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].name, std::string(64, 'n'));
  EXPECT_EQ(events[0].peer, std::string(32, 'p'));
  EXPECT_EQ(events[1].name, std::string(94, 'n'));
  EXPECT_EQ(events[1].peer, "w1");
  EXPECT_EQ(events[2].name, "f");
  EXPECT_EQ(events[2].peer, std::string(95, 'p'));
  EXPECT_EQ(events[3].name, std::string(95, 'n'));
}

TEST(FlightRecorderTest, MayBeReadWhileOthersWrite) {
  FlightRecorder recorder;
  std::thread writer([&recorder] {
    for (Nanos i = 0; i < 20000; ++i) recorder.add(event_at(i, i), std::to_string(i), std::to_string(i));
  });
  while (recorder.count() < 20000) {
    for (const FlightEvent& event : recorder.last(50)) {
      ASSERT_EQ(event.name, std::to_string(event.begin));
      ASSERT_EQ(event.peer, event.name);
    }
  }
  writer.join();
}

// ---- by way of a trace ----

TEST(FlightRecorderTest, GetsTheEndsThatATraceHearsOfAlsoWhereThatIsOff) {
  Trace trace;
  trace.add({}, "a slice");
  trace.add_ended(event_at(1, 2), "first", "w1");
  Parker wake;
  trace.open(wake);
  trace.add_ended(event_at(3, 4), "second", "w1");
  std::string taken;
  taken.reserve(Trace::kBufferSize);
  uint64_t dropped = 0;
  trace.take(taken, dropped);
  std::string_view rest = taken;
  const TakenTraceEvent written = take_first(rest);
  EXPECT_TRUE(rest.empty());
  EXPECT_EQ(written.name, "second");
  EXPECT_EQ(written.event.kind, TraceEvent::Kind::kSpan);
  EXPECT_NE(written.event.id.counter, 0u);
  const auto events = trace.recorder().last(10);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "first");
  EXPECT_EQ(events[1].name, "second");
}

TEST(FlightRecorderTest, TellsOfDeadlinesLossesAndDivergenceAlone) {
  Trace trace;
  int told = 0;
  trace.set_on_break([&told] { ++told; });
  for (const Status status : {Status::kOk, Status::kCancelled, Status::kRemote, Status::kOutOfMemory, Status::kUser}) {
    trace.add_ended(event_at(0, 1, status), "f");
  }
  EXPECT_EQ(told, 0);
  trace.add_ended(event_at(0, 1, Status::kDeadline), "f");
  trace.add_ended(event_at(0, 1, Status::kDisconnected), "f");
  trace.keep(event_at(0, 1, Status::kDiverged), "f");
  EXPECT_EQ(told, 3);
  trace.recorder().add(event_at(0, 1, Status::kDeadline), "f", "");
  EXPECT_EQ(told, 3);
}

}  // namespace
}  // namespace distag
