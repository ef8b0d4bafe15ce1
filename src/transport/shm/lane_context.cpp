#include "transport/shm/lane_context.h"

#include <algorithm>

#include "base/each_step.h"
#include "transport/shm/lane.h"

namespace distag {
namespace {

constexpr unsigned kMaxFailures = 2;
// The most endpoints that are remembered; beyond it all are forgotten.
constexpr size_t kMaxRemembered = 4096;
// The interval at which unused memory goes back to the system.
constexpr Nanos kTidyInterval = kSecond / 2;

}  // namespace

LaneContext::LaneContext(FdLoop& loop, Executor* background, uint64_t worker)
    : loop_(loop), background_(background), worker_(worker) {
  idle_check_ = loop_.add_idle_check([this] { return turn(); });
}

LaneContext::~LaneContext() {
  loop_.cancel_timer(tidy_timer_);
  EachStep each;
  if (lending_) each([this] { close_blocks(shared_memory::take_idle()); });
  loop_.remove_idle_check(idle_check_);
  loop_.remove_lookout(*this);
}

LaneReport LaneContext::make_report() const {
  assert_on_loop(loop_);
  LaneReport report = report_;
  for (const std::shared_ptr<Lane>& lane : lanes_) {
    if (lane == nullptr) continue;
    report.loans_out += lane->loans_out();
    report.bytes_out += lane->bytes_out();
  }
  return report;
}

void LaneContext::begin_lending() {
  assert_on_loop(loop_);
  if (lending_) return;
  lending_.emplace();
}

// Repeats as long as there is something to tidy.
void LaneContext::tidy_later() noexcept {
  assert_on_loop(loop_);
  if (tidy_timer_ != 0 || !lending_) return;
  const bool has_blocks = std::any_of(lanes_.begin(), lanes_.end(), [](const std::shared_ptr<Lane>& lane) {
    return lane != nullptr && lane->has_blocks();
  });
  if (!has_blocks && !shared_memory::has_blocks()) return;
  EachStep each;
  each([this] {
    tidy_timer_ = loop_.start_timer(loop_.now() + kTidyInterval, [this] {
      tidy_timer_ = 0;
      tidy();
      tidy_later();
    });
  });
}

void LaneContext::tidy() noexcept {
  EachStep each;
  for (const std::shared_ptr<Lane>& lane : lanes_) {
    if (lane != nullptr) each([&lane] { lane->tidy(); });
  }
  each([this] { close_blocks(shared_memory::trim()); });
}

void LaneContext::close_blocks(std::vector<std::shared_ptr<SharedBlock>> blocks) {
  if (blocks.empty()) return;
  Task close = [blocks = std::move(blocks)] {
    for (const auto& block : blocks) block->close();
  };
  if (background_ == nullptr) return close();
  background_->post_or_drop(std::move(close));
}

void LaneContext::add(const std::shared_ptr<Lane>& lane) {
  assert_on_loop(loop_);
  begin_lending();
  lanes_.push_back(lane);
  // A loop without lanes has no lookout to ask.
  if (report_.open == 0) {
    try {
      loop_.add_lookout(*this);
    } catch (...) {
      lanes_.back() = nullptr;
      has_holes_ = true;
      throw;
    }
  }
  ++report_.open;
}

void LaneContext::remove(const Lane& lane) noexcept {
  assert_on_loop(loop_);
  for (std::shared_ptr<Lane>& one : lanes_) {
    if (one.get() != &lane) continue;
    const std::shared_ptr<Lane> held = std::move(one);
    has_holes_ = true;
    if (--report_.open == 0) loop_.remove_lookout(*this);
    return;
  }
}

// Callbacks may add and remove lanes.
bool LaneContext::turn() {
  assert_on_loop(loop_);
  if (tidy_timer_ == 0 && shared_memory::has_blocks()) tidy_later();
  bool more = false;
  size_t ended = 0;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const std::shared_ptr<Lane> lane = lanes_[i];
    if (lane == nullptr) continue;
    more |= lane->turn();
    if (lanes_[i] == nullptr && ++ended == kEndsATurn) {
      more = true;
      break;
    }
  }
  if (std::exchange(has_holes_, false)) std::erase(lanes_, nullptr);
  return more;
}

bool LaneContext::has_work() noexcept {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const std::shared_ptr<Lane>& lane) { return lane != nullptr && lane->has_work(); });
}

bool LaneContext::is_under_way() const noexcept {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const std::shared_ptr<Lane>& lane) { return lane != nullptr && lane->is_under_way(); });
}

bool LaneContext::begin_sleep() noexcept {
  bool has_work = false;
  for (const std::shared_ptr<Lane>& lane : lanes_) has_work |= lane != nullptr && lane->begin_sleep();
  if (!lanes_.empty() && !has_work) ++report_.sleeps;
  return has_work;
}

void LaneContext::end_sleep() noexcept {
  for (const std::shared_ptr<Lane>& lane : lanes_) {
    if (lane != nullptr) lane->end_sleep();
  }
}

// Searches the lanes that the other worker has dialled.
std::optional<LentPlace> LaneContext::find_borrowed(const LanePeer& other, const std::byte* data, size_t size) const {
  assert_on_loop(loop_);
  if (!other.is_known()) return std::nullopt;
  for (const std::shared_ptr<Lane>& lane : lanes_) {
    const bool is_between = lane != nullptr && lane->borrower() != nullptr && lane->other() == other;
    if (!is_between) continue;
    if (const auto place = lane->borrower()->find(data, size)) return place;
  }
  return std::nullopt;
}

// Searches the lanes that this worker has dialled.
std::optional<Frame> LaneContext::find_lent(const LanePeer& other, const LentPlace& place, size_t size) const {
  assert_on_loop(loop_);
  if (!other.is_known()) return std::nullopt;
  for (const std::shared_ptr<Lane>& lane : lanes_) {
    const bool is_between = lane != nullptr && lane->lender() != nullptr && lane->other() == other;
    if (!is_between) continue;
    if (auto frame = lane->lender()->find(place, size)) return frame;
  }
  return std::nullopt;
}

bool LaneContext::has_failed(const std::string& endpoint, const FileIdentity& identity) const {
  assert_on_loop(loop_);
  const auto found = failures_.find(endpoint);
  return found != failures_.end() && found->second.identity == identity && found->second.count >= kMaxFailures;
}

void LaneContext::note_failure(const std::string& endpoint, const FileIdentity& identity) noexcept {
  assert_on_loop(loop_);
  try {
    if (failures_.size() >= kMaxRemembered) failures_.clear();
    Failures& failures = failures_[endpoint];
    if (!(failures.identity == identity)) failures = {identity, 0};
    ++failures.count;
  } catch (const std::bad_alloc&) {
    // A failure that is not remembered only costs one more try.
  }
}

void LaneContext::note_way(const std::string& endpoint, std::string_view way) noexcept {
  assert_on_loop(loop_);
  try {
    if (report_.ways.size() >= kMaxRemembered) report_.ways.clear();
    report_.ways[endpoint] = way;
  } catch (const std::bad_alloc&) {
    // The report lacks this entry.
  }
}

}  // namespace distag
