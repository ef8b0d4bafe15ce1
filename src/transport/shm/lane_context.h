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

// All open lanes of a transport: looks at their rings while the loop is awake, and has the other sides wake it when it
// sleeps. Lanes hold it by shared_ptr. On the loop.
class LaneContext final : Lookout {
 public:
  // Above this many the next one is refused: each costs a look.
  static constexpr size_t kMaxLanes = 1024;
  // Lanes that end in one turn of the loop: each gives back its memory, which takes some 20 us, and 500 us in a virtual
  // machine.
  static constexpr size_t kEndsATurn = 4;

  // `background`: for what takes long; nullptr: it is done at once. `worker`: as in LaneOffer.
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
  // From now on buffers of this process lie where they can be lent.
  void begin_lending();
  // There may be something to tidy; without memory for it a later turn tries again.
  void tidy_later() noexcept;
  bool has_room() const { return lanes_.size() < kMaxLanes; }

  void add(const std::shared_ptr<Lane>& lane);
  void remove(const Lane& lane) noexcept;

  // As PeerLoans.
  std::optional<LentPlace> find_borrowed(const LanePeer& other, const std::byte* data, size_t size) const;
  std::optional<Frame> find_lent(const LanePeer& other, const LentPlace& place, size_t size) const;

  // Whether lanes to the endpoint have failed twice, as long as the same one listens there.
  bool has_failed(const std::string& endpoint, const FileIdentity& identity) const;
  void note_failure(const std::string& endpoint, const FileIdentity& identity) noexcept;
  void forget_failures(const std::string& endpoint) noexcept {
    assert_on_loop(loop_);
    failures_.erase(endpoint);
  }
  // How the last dial to the endpoint went: "lane", or why without one. Forgotten when there is no memory for it.
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
