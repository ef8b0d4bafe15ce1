#include "base/trace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace distag {
namespace {

constexpr size_t kLongestText = 255;

struct Header {
  TraceEvent event;
  uint8_t name_size;
  uint8_t peer_size;
  uint8_t trace_id_size;
};

size_t copy_text(std::string_view text, char* to, size_t capacity) noexcept {
  const size_t size = std::min(text.size(), capacity);
  if (size != 0) std::memcpy(to, text.data(), size);
  return size;
}

}  // namespace

const char* category_name(TraceCategory category) {
  switch (category) {
    case TraceCategory::kCall:
      return "call";
    case TraceCategory::kAnswer:
      return "answer";
    case TraceCategory::kRun:
      return "run";
    case TraceCategory::kServed:
      return "served";
    case TraceCategory::kPass:
      return "pass";
    case TraceCategory::kCollective:
      return "collective";
    case TraceCategory::kOptimizer:
      return "optimizer";
    case TraceCategory::kMember:
      return "member";
    case TraceCategory::kHost:
      return "host";
  }
  return "other";
}

uint32_t current_thread_number() noexcept {
  thread_local const auto number = static_cast<uint32_t>(syscall(SYS_gettid));
  return number;
}

std::string name_of_thread(uint32_t number) {
  char name[32] = {};
  const std::string path = "/proc/self/task/" + std::to_string(number) + "/comm";
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {};
  const ssize_t size = read(descriptor, name, sizeof name);
  close(descriptor);
  return size > 0 ? std::string(name, static_cast<size_t>(size - 1)) : std::string();
}

void Trace::add(TraceEvent event, std::string_view name, std::string_view peer, std::string_view trace_id) noexcept {
  if (event.thread == 0) event.thread = current_thread_number();
  name = name.substr(0, kLongestText);
  peer = peer.substr(0, kLongestText);
  trace_id = trace_id.substr(0, kLongestText);
  Header header{event, static_cast<uint8_t>(name.size()), static_cast<uint8_t>(peer.size()),
                static_cast<uint8_t>(trace_id.size())};
  Parker* wake = nullptr;
  {
    MutexLock lock(mutex_);
    if (!is_on()) return;
    const size_t before = buffer_.size();
    if (before + sizeof header + name.size() + peer.size() + trace_id.size() > kBufferSize) {
      ++dropped_;
      return;
    }
    // Within its capacity, so this needs no memory.
    buffer_.append(reinterpret_cast<const char*>(&header), sizeof header);
    buffer_.append(name);
    buffer_.append(peer);
    buffer_.append(trace_id);
    if (before < kBufferSize / 2 && buffer_.size() >= kBufferSize / 2) wake = wake_;
    if (wake != nullptr) wake->unpark();  // the parker lives until close()
  }
}

void Trace::add_instant(TraceCategory category, std::string_view text) noexcept {
  if (!is_on()) return;
  TraceEvent event;
  event.kind = TraceEvent::Kind::kInstant;
  event.category = category;
  event.begin = event.end = SteadyClock().now();
  add(event, text);
}

void Trace::add_ended(TraceEvent event, std::string_view name, std::string_view peer,
                      std::string_view trace_id) noexcept {
  keep(event, name, peer);
  if (!is_on()) return;
  event.kind = TraceEvent::Kind::kSpan;
  if (event.id == Id{}) event.id = next_span();
  add(event, name, peer, trace_id);
}

void Trace::keep(const TraceEvent& event, std::string_view name, std::string_view peer) noexcept {
  recorder_.add(event, name, peer);
  timings_.add(event, name);
  if (is_break(event.status) && on_break_) on_break_();
}

void Trace::open(Parker& wake) {
  MutexLock lock(mutex_);
  buffer_.clear();
  buffer_.reserve(kBufferSize);
  dropped_ = 0;
  wake_ = &wake;
  is_on_.store(true);
}

void Trace::close() noexcept {
  MutexLock lock(mutex_);
  is_on_.store(false);
  wake_ = nullptr;
}

void Trace::take(std::string& events, uint64_t& dropped) noexcept {
  events.clear();
  MutexLock lock(mutex_);
  buffer_.swap(events);
  dropped = std::exchange(dropped_, 0);
}

TakenTraceEvent take_first(std::string_view& events) {
  Header header;
  std::memcpy(&header, events.data(), sizeof header);
  const std::string_view texts = events.substr(sizeof header);
  const size_t names_size = size_t{header.name_size} + header.peer_size;
  const TakenTraceEvent taken{header.event, texts.substr(0, header.name_size),
                              texts.substr(header.name_size, header.peer_size),
                              texts.substr(names_size, header.trace_id_size)};
  events.remove_prefix(sizeof header + names_size + header.trace_id_size);
  return taken;
}

void TraceScope::begin(TraceCategory category, std::string_view name, std::string_view peer) noexcept {
  event_.category = category;
  event_.begin = SteadyClock().now();
  name_size_ = copy_text(name, name_, sizeof name_);
  peer_size_ = copy_text(peer, peer_, sizeof peer_);
}

void TraceScope::end() noexcept {
  event_.end = SteadyClock().now();
  trace_->add(event_, {name_, name_size_}, {peer_, peer_size_}, {trace_id_, trace_id_size_});
}

}  // namespace distag
