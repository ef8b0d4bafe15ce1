#include "worker/trace_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/expect.h"

namespace distag {
namespace {

using nlohmann::json;
using testing::failure_of;

struct TraceWriterTest : ::testing::Test {
  TraceWriterTest() {
    char pattern[] = "/tmp/distag-trace-writer-XXXXXX";
    folder = mkdtemp(pattern);
    log = std::make_unique<Log>(LogLevel::kWarning, [this](LogLevel, const std::string&) { ++warnings; });
    writer = std::make_unique<TraceWriter>(
        TraceWriter::Environment{trace, *log, [this] { return has_name ? std::string("w0") : std::string(); },
                                 [this] { return has_name ? 3 : -1; }, ThreadHooks{}});
  }
  ~TraceWriterTest() override {
    writer.reset();
    std::filesystem::remove_all(folder);
  }

  std::string path() const { return folder + "/w0.trace.json"; }
  json events() const {
    std::ifstream file(path());
    std::stringstream text;
    text << file.rdbuf();
    return json::parse(text.str());
  }
  json named(const std::string& name) const {
    for (const json& event : events()) {
      if (event["name"] == name) return event;
    }
    return nullptr;
  }

  std::string folder;
  std::atomic<bool> has_name{true};
  std::atomic<int> warnings{0};
  Trace trace;
  std::unique_ptr<Log> log;
  std::unique_ptr<TraceWriter> writer;
};

TEST_F(TraceWriterTest, KeepsEventsUntilTheWorkerHasItsName) {
  has_name = false;
  writer->start({folder, 1 << 20}, false);
  trace.add_instant(TraceCategory::kMember, "early");
  has_name = true;
  EXPECT_TRUE(writer->stop(kForever));
  EXPECT_EQ(named("early")["ph"], "i");
  EXPECT_EQ(named("distag_worker")["args"]["rank"], 3);
  EXPECT_EQ(warnings, 0);
}

TEST_F(TraceWriterTest, WritesNothingWithoutAName) {
  has_name = false;
  writer->start({folder, 1 << 20}, false);
  EXPECT_TRUE(writer->stop(kForever));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(TraceWriterTest, MendsTextThatIsNoUtf8) {
  writer->start({folder, 1 << 20}, true);
  trace.add_instant(TraceCategory::kMember, "\"quoted\"\n\xff");
  EXPECT_TRUE(writer->stop(kForever));
  EXPECT_EQ(events().back()["name"], "\"quoted\"\n\xef\xbf\xbd");
}

TEST_F(TraceWriterTest, SpansThatAreOpenAtTheEndAreNotWritten) {
  EXPECT_EQ(writer->begin_span("before"), 0u);
  writer->start({folder, 1 << 20}, true);
  const uint64_t open = writer->begin_span("open");
  const uint64_t done = writer->begin_span("done");
  EXPECT_NE(open, done);
  writer->end_span(done);
  EXPECT_TRUE(writer->stop(kForever));
  writer->end_span(open);
  EXPECT_EQ(named("open"), nullptr);
  EXPECT_EQ(named("done")["ph"], "b");
}

TEST_F(TraceWriterTest, OneTraceAtATimeAndNoneAfterTheEnd) {
  writer->start({folder, 1 << 20}, true);
  EXPECT_NE(failure_of([&] { writer->start({folder, 1 << 20}, true); }).find("stop it first"), std::string::npos);
  EXPECT_TRUE(writer->stop_for_good(kForever));
  EXPECT_TRUE(writer->stop_for_good(kForever));
  EXPECT_NE(failure_of([&] { writer->start({folder, 1 << 20}, true); }).find("shut down"), std::string::npos);
  EXPECT_FALSE(trace.is_on());
}

TEST_F(TraceWriterTest, AFullFileHasTheCountOfWhatIsMissing) {
  constexpr uint64_t kCount = 5000;
  writer->start({folder, 1 << 16}, true);
  for (uint64_t i = 0; i < kCount; ++i) trace.add_instant(TraceCategory::kMember, "event");
  EXPECT_TRUE(writer->stop(kForever));
  EXPECT_LE(std::filesystem::file_size(path()), 1u << 16);
  uint64_t written = 0;
  uint64_t dropped = 0;
  for (const json& event : events()) {
    if (event["name"] == "event") ++written;
    if (event["name"] == "dropped events") dropped = event["args"]["dropped"];
  }
  EXPECT_EQ(written + dropped, kCount);
  EXPECT_EQ(warnings, 1);
}

}  // namespace
}  // namespace distag
