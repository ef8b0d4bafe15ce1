#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/executor.h"
#include "base/fd_loop.h"
#include "base/shared_memory.h"
#include "transport/shm/borrower.h"
#include "transport/shm/lane_socket.h"
#include "transport/shm/peer_loans.h"
#include "transport/transport.h"

namespace distag {

class Lane;

// All open lanes of a transport: checks their rings while the loop is awake, and lets the other sides wake the loop
// when it sleeps. Lanes hold it by shared_ptr. On the loop.
class LaneContext final : Lookout {
 public:
  // The limit of lanes: each costs a check in every turn. Further ones are refused.
  static constexpr size_t kMaxLanes = 1024;
  // The most lanes that end in one turn of the loop: each unmaps its memory, which takes some 20 us, and 500 us in a
  // virtual machine.
  static constexpr size_t kEndsATurn = 4;

  // `background`: runs slow work; nullptr: it runs at once. `worker`: as in LaneOffer.
  explicit LaneContext(FdLoop& loop, Executor* background = nullptr, uint64_t worker = 0);
  ~LaneContext() override;
  LaneContext(const LaneContext&) = delete;
  LaneContext& operator=(const LaneContext&) = delete;

  FdLoop& loop() const { return loop_; }
  Executor* background() const { return background_; }
  uint64_t worker() const { return worker_; }
  const std::shared_ptr<BorrowedRoom>& borrowed_room() const { return borrowed_room_; }
  LaneReport& report() { return report_; }
  LaneReport make_report() const;
  // From now on buffers of this process are made in memory that can be lent.
  void begin_lending();
  // Schedules tidying; without memory to do so, a later turn tries again.
  void tidy_later() noexcept;
  bool has_room() const { return lanes_.size() < kMaxLanes; }

  void add(const std::shared_ptr<Lane>& lane);
  void remove(const Lane& lane) noexcept;

  // Like PeerLoans.
  std::optional<LentPlace> find_borrowed(const LanePeer& other, const std::byte* data, size_t size) const;
  std::optional<Frame> find_lent(const LanePeer& other, const LentPlace& place, size_t size) const;

  // Whether two lanes to the endpoint have failed, while the same listener was there.
  bool has_failed(const std::string& endpoint, const FileIdentity& identity) const;
  void note_failure(const std::string& endpoint, const FileIdentity& identity) noexcept;
  void forget_failures(const std::string& endpoint) noexcept {
    assert_on_loop(loop_);
    failures_.erase(endpoint);
  }
  // Notes the result of the last dial to the endpoint: "lane", or why it made none. Forgotten without memory.
  void note_way(const std::string& endpoint, std::string_view way) noexcept;

 private:
  struct Failures {
    FileIdentity identity;
    unsigned count = 0;
  };

  void tidy() noexcept;
  void close_blocks(std::vector<std::shared_ptr<SharedBlock>> blocks);
  bool turn();
  bool has_work() noexcept override;
  bool is_under_way() const noexcept override;
  bool begin_sleep() noexcept override;
  void end_sleep() noexcept override;

  FdLoop& loop_;
  Executor* const background_;
  const uint64_t worker_;
  const std::shared_ptr<BorrowedRoom> borrowed_room_ = std::make_shared<BorrowedRoom>();
  std::optional<shared_memory::Use> lending_;
  Loop::TimerId tidy_timer_ = 0;
  LaneReport report_;
  std::vector<std::shared_ptr<Lane>> lanes_;  // null: removed
  bool has_holes_ = false;
  uint64_t idle_check_ = 0;
  std::unordered_map<std::string, Failures> failures_;
};

}  // namespace distag
