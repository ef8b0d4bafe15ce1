// Counters of a worker: as a struct, and as metrics for Prometheus.

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/timings.h"
#include "capi/struct_check.h"
#include "capi/text_copy.h"
#include "capi/worker.h"

using namespace distag;
using namespace distag::capi;

namespace {

enum class MetricKind { kCounter, kGauge };

struct Metric {
  size_t offset;  // offset of a uint64_t in distag_stats
  MetricKind kind;
  const char* name;
  const char* help;
};

constexpr size_t kFirstCounter = offsetof(distag_stats, calls_made);

constexpr std::array kMetrics = {
    Metric{offsetof(distag_stats, calls_made), MetricKind::kCounter, "calls_made", "Calls made to other workers."},
    Metric{offsetof(distag_stats, calls_served), MetricKind::kCounter, "calls_served",
           "Calls of other workers served."},
    Metric{offsetof(distag_stats, calls_failed), MetricKind::kCounter, "calls_failed", "Calls made that failed."},
    Metric{offsetof(distag_stats, calls_open), MetricKind::kGauge, "calls_open", "Open calls, made and served."},
    Metric{offsetof(distag_stats, futures_open), MetricKind::kGauge, "futures_open", "Calls made and not answered."},
    Metric{offsetof(distag_stats, contexts), MetricKind::kGauge, "contexts", "Contexts that are alive."},
    Metric{offsetof(distag_stats, passes_run), MetricKind::kCounter, "passes_run", "Backward passes run."},
    Metric{offsetof(distag_stats, passes_failed), MetricKind::kCounter, "passes_failed",
           "Backward passes that failed."},
    Metric{offsetof(distag_stats, passes_open), MetricKind::kGauge, "passes_open", "Backward passes under way."},
    Metric{offsetof(distag_stats, rrefs_owned), MetricKind::kGauge, "rrefs_owned", "Referenced values owned."},
    Metric{offsetof(distag_stats, rrefs_used), MetricKind::kGauge, "rrefs_used", "References to values of others."},
    Metric{offsetof(distag_stats, rref_forks), MetricKind::kGauge, "rref_forks",
           "References others hold on values owned."},
    Metric{offsetof(distag_stats, bytes_sent), MetricKind::kCounter, "bytes_sent", "Bytes sent to other workers."},
    Metric{offsetof(distag_stats, bytes_received), MetricKind::kCounter, "bytes_received", "Bytes received."},
    Metric{offsetof(distag_stats, bytes_in_flight), MetricKind::kGauge, "bytes_in_flight",
           "Bytes sent and not acknowledged."},
    Metric{offsetof(distag_stats, messages_replayed), MetricKind::kCounter, "messages_replayed",
           "Messages sent again after a reconnect."},
    Metric{offsetof(distag_stats, messages_duplicated), MetricKind::kCounter, "messages_duplicated",
           "Messages received again and dropped."},
    Metric{offsetof(distag_stats, messages_refused), MetricKind::kCounter, "messages_refused",
           "Messages and connections refused."},
    Metric{offsetof(distag_stats, peers_connected), MetricKind::kGauge, "peers_connected",
           "Peers with an open stream."},
    Metric{offsetof(distag_stats, peers_lost), MetricKind::kCounter, "peers_lost", "Peers lost."},
    Metric{offsetof(distag_stats, callbacks_waiting), MetricKind::kGauge, "callbacks_waiting",
           "Callbacks waiting for a thread or a poll."},
    Metric{offsetof(distag_stats, request_bytes_open), MetricKind::kGauge, "request_bytes_open",
           "Bytes of requests that callees have not begun."},
    Metric{offsetof(distag_stats, request_bytes_waiting), MetricKind::kGauge, "request_bytes_waiting",
           "Bytes of requests waiting here for room."},
    Metric{offsetof(distag_stats, traceparents_dropped), MetricKind::kCounter, "traceparents_dropped",
           "Malformed traceparents of calls made and served."},
};

constexpr bool names_every_field() {
  for (size_t i = 0; i < kMetrics.size(); ++i) {
    if (kMetrics[i].offset != kFirstCounter + i * sizeof(uint64_t)) return false;
  }
  return kFirstCounter + kMetrics.size() * sizeof(uint64_t) == sizeof(distag_stats);
}
static_assert(names_every_field(), "each field of distag_stats has a metric, in its order");

// The value of a label, as the text format wants it.
std::string escaped(const std::string& text) {
  std::string label;
  for (const char c : text) {
    if (c == '\n') {
      label += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') label += '\\';
    label += c;
  }
  return label;
}

// The lines of one histogram, each bucket with those below it; the last one has all, whatever is added meanwhile.
void write_histogram(std::string& text, const char* name, const std::string& labels, const Histogram::Counts& counts) {
  uint64_t total = 0;
  for (size_t i = 0; i < counts.buckets.size(); ++i) {
    total += counts.buckets[i];
    const std::string bound = i == Histogram::kBounds.size()
                                  ? "+Inf"
                                  : fmt::format("{}", static_cast<double>(Histogram::kBounds[i]) / kSecond);
    text += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, total);
  }
  text += fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels,
                      static_cast<double>(counts.sum) / kSecond, total);
}

void write_head(std::string& text, const std::string& name, const char* help, const char* type) {
  text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

void write_timings(std::string& text, const std::string& worker, const Timings& timings) {
  const std::vector<Timings::OfFunction> functions = timings.functions();
  const auto by_function = [&](const char* name, const char* help, Histogram::Counts Timings::OfFunction::*which) {
    write_head(text, name, help, "histogram");
    for (const Timings::OfFunction& function : functions) {
      write_histogram(text, name, fmt::format("{},function=\"{}\"", worker, escaped(function.name)), function.*which);
    }
  };
  by_function("distag_call_seconds", "Calls made, from the call to its end.", &Timings::OfFunction::made);
  by_function("distag_queue_seconds", "Calls served, from their arrival to the begin of the function.",
              &Timings::OfFunction::queued);
  by_function("distag_served_seconds", "Calls served, from their arrival to their end.", &Timings::OfFunction::served);
  write_head(text, "distag_pass_seconds", "Backward passes that began here.", "histogram");
  write_histogram(text, "distag_pass_seconds", worker, timings.passes());
  write_head(text, "distag_collective_seconds", "Collectives, from their begin here to their end.", "histogram");
  write_histogram(text, "distag_collective_seconds", worker, timings.collectives());
}

std::string write_metrics(const std::string& worker, const distag_stats& stats, const Timings& timings) {
  const std::string label = fmt::format("worker=\"{}\"", escaped(worker));
  std::string text;
  for (const Metric& metric : kMetrics) {
    uint64_t value = 0;
    std::memcpy(&value, reinterpret_cast<const unsigned char*>(&stats) + metric.offset, sizeof value);
    const bool is_counter = metric.kind == MetricKind::kCounter;
    const std::string name = fmt::format("distag_{}{}", metric.name, is_counter ? "_total" : "");
    write_head(text, name, metric.help, is_counter ? "counter" : "gauge");
    text += fmt::format("{}{{{}}} {}\n", name, label, value);
  }
  write_timings(text, label, timings);
  return text;
}

distag_stats to_stats(const WorkerStats& stats) {
  distag_stats filled{};
  filled.calls_made = stats.rpc.calls_made;
  filled.calls_served = stats.rpc.calls_served;
  filled.calls_failed = stats.rpc.calls_failed;
  filled.calls_open = stats.rpc.calls_open;
  filled.futures_open = stats.rpc.futures_open;
  filled.contexts = stats.dautograd.contexts;
  filled.passes_run = stats.dautograd.passes_run;
  filled.passes_failed = stats.dautograd.passes_failed;
  filled.passes_open = stats.dautograd.passes_open;
  filled.rrefs_owned = stats.rrefs.owned;
  filled.rrefs_used = stats.rrefs.used;
  filled.rref_forks = stats.rrefs.forks;
  filled.bytes_sent = stats.session.bytes_sent;
  filled.bytes_received = stats.session.bytes_received;
  filled.bytes_in_flight = stats.session.bytes_in_flight;
  filled.messages_replayed = stats.session.messages_replayed;
  filled.messages_duplicated = stats.session.messages_duplicated;
  filled.messages_refused = stats.session.messages_refused;
  filled.peers_connected = stats.session.peers_connected;
  filled.peers_lost = stats.session.peers_lost;
  filled.callbacks_waiting = stats.callbacks_waiting;
  filled.request_bytes_open = stats.requests.open;
  filled.request_bytes_waiting = stats.requests.waiting;
  filled.traceparents_dropped = stats.rpc.trace_parents_dropped;
  return filled;
}

}  // namespace

distag_status distag_worker_get_stats(distag_worker* worker, distag_stats* out_stats, distag_error* err) {
  return guard(__func__, err, [=] {
    if (is_readable(out_stats, sizeof(distag_stats), kFirstStats)) fill_struct(out_stats, distag_stats{});
    distag_worker& live = need_worker(worker);
    check_filled_struct(out_stats, sizeof(distag_stats), "distag_stats", kFirstStats);
    fill_struct(out_stats, to_stats(live.hosted().stats()));
  });
}

distag_status distag_worker_copy_metrics(distag_worker* worker, char* buffer, size_t capacity, size_t* out_size,
                                         distag_error* err) {
  clear(out_size);
  if (buffer != nullptr && capacity > 0) *buffer = '\0';
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    check_array(buffer, capacity, "buffer");
    need_pointer(out_size, "out_size");
    copy_text(write_metrics(live.core().name(), to_stats(live.hosted().stats()), live.core().timings()), buffer,
              capacity, out_size);
  });
}
