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

// The workers that have come to a rendezvous, and the rules for joining. The first joiner defines the group.
//
// A static group gathers until all its ranks have come; a worker that goes before that counts as never there. From then
// on, and in an open group from the start, a rank belongs to a name: only a worker of that name may get the rank, once
// the holder is gone.
class RankTable {
 public:
  struct Seat {
    Peer peer;
    bool is_gone = false;
  };
  // The last worker that expected another world size.
  struct Misled {
    std::string name;
    int32_t world_size = 0;  // 0: there was none
  };
  // A worker that may not join, and the reason.
  struct Refused {
    std::string name;  // empty: it gave none
    std::string text;
    std::string place;  // appended to the text, but not compared with others
  };
  static constexpr size_t kMostRefused = 8;
  static constexpr size_t kLongestRefusal = 512;  // bytes of a text, or of a place

  struct Book {
    bool has_met = false;                         // a static group: all ranks have been there at once
    std::map<int32_t, Seat> seats;                // by rank
    std::set<int32_t> withdrawn;                  // ranks that came, and went before all had come
    std::map<std::string, uint64_t> generations;  // number of joins by name
    Misled misled;
    std::deque<Refused> refused = {};  // the last ones, until the group has met
    size_t forgotten = 0;              // number of refused workers before those
  };

  // `where` is the uri, for messages. `world_size` -1 means an open group.
  RankTable(std::string where, std::string job, int32_t world_size);
  RankTable(std::string where, std::string job, int32_t world_size, Book book);

  // Throws if the joiner may not join: PROTOCOL (another version), DENIED (another job), INVALID_ARGUMENT (another
  // world size, a rank outside the world), INVALID_STATE (its name or rank is taken, or belongs to another worker). A
  // worker of the job that expects another world size is noted for missing_error(): it may be the missing one.
  void check(const wire::Join& join);
  // The present member whose name or rank the joiner wants; nullptr: no such member.
  const Peer* find_rival(const wire::Member& member) const;
  bool has(Incarnation incarnation) const { return find(incarnation).has_value(); }
  std::optional<Peer> find(Incarnation incarnation) const;  // a member that is here

  // Notes a refused worker and the reason, for missing_error(): it may be a missing one. The last ones are kept, each
  // until a worker of its name is a member. `name` is empty if the worker gave none.
  void note_refused(const std::string& name, std::string text);
  void note_refused(const wire::Join& join, const Error& error);

  // Adds a worker that passed check() or is here already; assigns a rank and a name if it gave none.
  void add(const wire::Member& member);
  void remove(Incarnation incarnation);

  bool is_open() const { return world_size_ < 0; }
  // True if the members know each other: a later worker joins a running group.
  bool has_met() const { return is_open() || book_.has_met; }
  bool is_deserted() const;
  // The ranks that have never come.
  std::vector<int32_t> missing() const;
  // DEADLINE: names the ranks that never came, the ranks that came and went before all were there, and the workers that
  // were refused and did not come again.
  Error missing_error() const;
  // By rank. For a static group that has met, includes members that have gone since.
  std::vector<Peer> members() const;
  const Book& book() const { return book_; }

 private:
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
};

// A group as a member knows it, merged with the book that its rendezvous has now. The rendezvous may have lost some of
// it: an etcd that was restored from an older snapshot. For one name the later generation counts.
struct Restored {
  RankTable::Book book;
  bool has_news = false;      // the rendezvous has to be updated
  bool is_contested = false;  // by a present worker of another group, or of an earlier time
};
Restored restore(const RankTable::Book& known, const RankTable::Book& found, const std::set<Incarnation>& here);

wire::Member to_member(const Peer& peer);
Peer to_peer(const wire::Member& member);

// DEADLINE, when only the missing ranks are known.
Error missing_error(const std::string& where, const std::vector<int32_t>& missing, int32_t world_size);

}  // namespace distag
