#include "group/rendezvous_pmix.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "group/group_record.h"
#include "group/joining.h"

namespace distag {
namespace {

class PmixJoining final : public JoiningElsewhere {
 public:
  PmixJoining(const std::string& uri, Loop& loop, Log& log, JobBoard& board)
      : JoiningElsewhere(loop, log, uri), board_(board) {}
  ~PmixJoining() override { board_.withdraw(); }

  void look_up(Incarnation incarnation, Answer answer) override {
    for (const Peer& member : members_) {
      if (member.incarnation == incarnation) return answer(member);
    }
    answer(std::nullopt);
  }

 private:
  void begin() override {
    if (request().world_size < 0) {
      fail(Status::kInvalidArgument,
           "rendezvous \"{}\": a world of -1 is open, and a job of PMIx has a size: take etcd:// for one that grows",
           uri());
    }
    const wire::Join join = join_message();
    RankTable self = table();
    self.add(join.member);
    board_.exchange(
        "distag." + join.job, write_group_record({join.job, join.protocol, join.world_size, self.book()}),
        [this](JobBoard::Outcome outcome) { on_exchanged(outcome); },
        [this](std::vector<int32_t> missing) { missing_ = std::move(missing); });
  }

  Error awaited() override {
    if (!missing_.empty()) return missing_error(uri(), missing_, request().world_size);
    return Error(Status::kDeadline,
                 fmt::format("rendezvous \"{}\": the {} processes of the job did not all come in time", uri(),
                             request().world_size));
  }
  void on_deadline() override { board_.withdraw(); }

  void on_exchanged(const JobBoard::Outcome& outcome) {
    if (is_over()) return;
    try {
      if (outcome.error) throw *outcome.error;
      check_place(outcome);
      members_ = read_members(outcome.texts);
      check_members(members_);
      succeed(members_);
    } catch (...) {
      Error error = current_error();
      const std::string where = fmt::format("rendezvous \"{}\"", uri());
      if (!error.message().starts_with(where)) error.add_context(where);
      give_up(std::move(error));
    }
  }

  // The options of a worker may contradict its launcher.
  void check_place(const JobBoard::Outcome& outcome) const {
    const auto size = static_cast<int64_t>(outcome.texts.size());
    if (request().self.rank == outcome.rank && request().world_size == size) return;
    fail(
        Status::kInvalidArgument,
        "this is rank {} of {} by its options or environment, and rank {} of {} by PMIx: leave rank and world_size out",
        request().self.rank, request().world_size, outcome.rank, size);
  }

  RankTable table() const { return {uri(), request().job, request().world_size}; }

  // The texts of the others are checked like JOINs.
  std::vector<Peer> read_members(const std::vector<std::string>& texts) const {
    RankTable group = table();
    int32_t rank = 0;
    for (const std::string& text : texts) {
      try {
        add_member(group, rank, text);
      } catch (...) {
        throw current_error().add_context(fmt::format("rank {}", rank));
      }
      ++rank;
    }
    return group.members();
  }

  void add_member(RankTable& group, int32_t rank, const std::string& text) const {
    if (text.empty()) {
      fail(Status::kDisconnected, "it is in no group \"{}\" of its job: it has put no address for that", request().job);
    }
    GroupRecord record = read_group_record(text);
    check_same_group(uri(), record, join_message());
    const auto seat = record.book.seats.find(rank);
    if (record.book.seats.size() != 1 || seat == record.book.seats.end()) {
      fail(Status::kProtocol, "it has put {} members on the board, and not itself alone", record.book.seats.size());
    }
    wire::Join join = join_message();
    join.member = to_member(seat->second.peer);
    group.check(join);
    group.add(join.member);
  }

  JobBoard& board_;
  std::vector<int32_t> missing_;  // as the board last reported
  std::vector<Peer> members_;
};

}  // namespace

std::unique_ptr<Rendezvous> make_pmix_rendezvous(const std::string& uri, Loop& loop, Log& log, JobBoard& board) {
  return std::make_unique<PmixJoining>(uri, loop, log, board);
}

}  // namespace distag
