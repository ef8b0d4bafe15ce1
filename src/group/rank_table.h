#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "session/session.h"
#include "wire/message.h"

namespace distag {

constexpr int32_t kRanks = 65536;  // a rank has 16 bits in the id of a context

// Those who have come to a rendezvous, and the rules of who may. Its first joiner says what the group is.
//
// A static group gathers until all its ranks have come; who goes before that was never there. From then on, and in an
// open group from the first, a rank belongs to the name that has it: only that name may come back to it, once its
// holder is gone.
class RankTable {
 public:
  struct Seat {
    Peer peer;
    bool is_gone = false;
  };
  // The last one that expected another world.
  struct Misled {
    std::string name;
    int32_t world_size = 0;  // 0: there was none
  };
  struct Book {
    bool has_met = false;                         // a static group: all ranks have come once
    std::map<int32_t, Seat> seats;                // by rank
    std::set<int32_t> withdrawn;                  // ranks that came, and went before all had come
    std::map<std::string, uint64_t> generations;  // joins of each name
    Misled misled;
  };

  // `where` is the uri, for messages. `world_size` -1: open.
  RankTable(std::string where, std::string job, int32_t world_size);
  RankTable(std::string where, std::string job, int32_t world_size, Book book);

  // Throws what the joiner did wrong: PROTOCOL (another version), DENIED (another job), INVALID_ARGUMENT (another size
  // of the world, a rank outside of it), INVALID_STATE (its name or rank is taken, or is another's). One of the job
  // that expects another world is remembered, for missing_error(): it may be the one that is missed.
  void check(const wire::Join& join);
  // The member that is here and holds the name or the rank that the joiner wants; nullptr: no such member.
  const Peer* find_rival(const wire::Member& member) const;
  bool has(Incarnation incarnation) const { return find(incarnation).has_value(); }
  std::optional<Peer> find(Incarnation incarnation) const;  // of a member that is here

  // A worker that was refused, and why, for missing_error(): it may be one that is missed. The last ones are
  // remembered, each until a worker of its name is a member. `name`: empty where it has given none.
  void note_refused(const std::string& name, std::string text);
  void note_refused(const wire::Join& join, const Error& error);

  // A member that passed check(), or is here already: gives it what it left open, a rank and a name.
  void add(const wire::Member& member);
  void remove(Incarnation incarnation);

  bool is_open() const { return world_size_ < 0; }
  // The members know each other: who comes now joins a running group.
  bool has_met() const { return is_open() || book_.has_met; }
  bool is_deserted() const;
  // Ranks that have not come so far.
  std::vector<int32_t> missing() const;
  // DEADLINE: which ranks never came, apart from them which came and went before all were there, and who was refused
  // and did not come again.
  Error missing_error() const;
  // By rank. Of a static group that has met all, also those who have gone since.
  std::vector<Peer> members() const;
  const Book& book() const { return book_; }

 private:
  struct Refused {
    std::string name;
    std::string text;
    std::string place;  // told with the text; another process of one host is no other stranger
  };
  static constexpr size_t kMostRefused = 8;

  void note_refused(Refused refused);
  std::string list_refused() const;
  const Seat* seat_of(const std::string& name) const;
  int32_t rank_for(const std::string& name) const;
  Error error_of_ranks() const;
  void check_world(const wire::Join& join);
  void check_place(const wire::Member& member) const;

  const std::string where_;
  const std::string job_;
  const int32_t world_size_;
  Book book_;
  std::deque<Refused> refused_;  // the last ones
  size_t forgotten_ = 0;         // of those before
};

// A group as a member has known it, joined with the book that its rendezvous has now, which may have forgotten some of
// it: an etcd that was restored from an older snapshot. Of one name the later generation counts.
struct Restored {
  RankTable::Book book;
  bool has_news = false;      // for the rendezvous
  bool is_contested = false;  // by a worker of another group that is `here`, or of an earlier time
};
Restored restore(const RankTable::Book& known, const RankTable::Book& found, const std::set<Incarnation>& here);

wire::Member to_member(const Peer& peer);
Peer to_peer(const wire::Member& member);

// DEADLINE, of one that knows no more than the ranks that did not come.
Error missing_error(const std::string& where, const std::vector<int32_t>& missing, int32_t world_size);

}  // namespace distag
