#include "group/group_record.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/each_step.h"
#include "base/plain_numbers.h"
#include "group/rendezvous.h"

namespace distag {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestEndpoint = 1024;
constexpr size_t kLongestRefusal = RankTable::kLongestRefusal;

Json member_to_json(const wire::Member& member) {
  return Json{{"rank", member.rank},
              {"name", member.name},
              {"endpoint", member.endpoint},
              {"incarnation", member.incarnation},
              {"generation", member.generation},
              {"max_message_bytes", member.max_message_bytes}};
}

// The JSON library converts numbers silently, so numbers that are not whole or not in their range are refused here.
template <typename Number>
Number number_of(const Json& value, Number least, Number most) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (std::cmp_greater_equal(number, least) && std::cmp_less_equal(number, most)) return static_cast<Number>(number);
  } else if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    if (std::cmp_greater_equal(number, least) && std::cmp_less_equal(number, most)) return static_cast<Number>(number);
  }
  fail(Status::kProtocol, "a number is invalid or out of its range");
}

int32_t rank_of(const Json& value, int32_t world_size) {
  return number_of<int32_t>(value, 0, world_size < 0 ? kRanks - 1 : world_size - 1);
}

int32_t world_size_of(const Json& value) {
  const auto size = number_of<int32_t>(value, -1, INT32_MAX);
  if (size == 0) fail(Status::kProtocol, "a world of 0");
  return size;
}

std::string name_of(const Json& value) {
  auto name = value.get<std::string>();
  if (!is_worker_name(name)) fail(Status::kProtocol, "a name that no worker can have");
  return name;
}

std::string text_of(const Json& value, size_t longest) {
  auto text = value.get<std::string>();
  if (text.empty() || text.size() > longest) fail(Status::kProtocol, "a text of {} bytes", text.size());
  return text;
}

wire::Member member_from_json(const Json& json, int32_t world_size) {
  return {rank_of(json.at("rank"), world_size),
          name_of(json.at("name")),
          text_of(json.at("endpoint"), kLongestEndpoint),
          number_of<uint64_t>(json.at("incarnation"), 1, UINT64_MAX),
          number_of<uint64_t>(json.at("generation"), 1, UINT64_MAX),
          number_of<uint64_t>(json.at("max_message_bytes"), 0, UINT64_MAX)};
}

Json refused_to_json(const RankTable::Book& book) {
  Json all = Json::array();
  for (const RankTable::Refused& one : book.refused) {
    all.push_back(Json{{"name", one.name}, {"text", one.text}, {"place", one.place}});
  }
  return all;
}

Json book_to_json(const RankTable::Book& book) {
  Json seats = Json::array();
  for (const auto& [rank, seat] : book.seats) {
    Json json = member_to_json(to_member(seat.peer));
    json["is_gone"] = seat.is_gone;
    seats.push_back(std::move(json));
  }
  return Json{{"has_met", book.has_met},
              {"seats", std::move(seats)},
              {"withdrawn", book.withdrawn},
              {"generations", book.generations},
              {"misled", {{"name", book.misled.name}, {"world_size", book.misled.world_size}}},
              {"refused", refused_to_json(book)},
              {"forgotten", book.forgotten}};
}

// Older versions wrote none.
void read_refused(const Json& json, RankTable::Book& book) {
  if (!json.contains("refused")) return;
  const Json& all = json.at("refused");
  if (all.size() > RankTable::kMostRefused) fail(Status::kProtocol, "{} refused workers", all.size());
  for (const Json& one : all) {
    const auto name = one.at("name").get<std::string>();
    const auto place = one.at("place").get<std::string>();
    if (place.size() > kLongestRefusal) fail(Status::kProtocol, "a place of {} bytes", place.size());
    book.refused.push_back(
        {name.empty() ? name : name_of(one.at("name")), text_of(one.at("text"), kLongestRefusal), place});
  }
  book.forgotten = number_of<size_t>(json.at("forgotten"), 0, SIZE_MAX);
}

// Each name, rank and incarnation occurs once; no generation is above the last one given.
void check_seats(const RankTable::Book& book, int32_t world_size) {
  std::set<std::string> names;
  std::set<uint64_t> incarnations;
  for (const auto& [rank, seat] : book.seats) {
    const auto last = book.generations.find(seat.peer.name);
    const bool is_given = last != book.generations.end() && seat.peer.generation <= last->second;
    if (!is_given || !names.insert(seat.peer.name).second || !incarnations.insert(seat.peer.incarnation).second) {
      fail(Status::kProtocol, "the entries of the group contradict each other");
    }
  }
  const bool is_whole = world_size > 0 && std::cmp_equal(book.seats.size(), world_size);
  if (book.has_met != is_whole) fail(Status::kProtocol, "a group that is complete without all, or not with all");
}

RankTable::Book book_from_json(const Json& json, int32_t world_size) {
  RankTable::Book book;
  book.has_met = json.at("has_met").get<bool>();
  for (const Json& seat : json.at("seats")) {
    const wire::Member member = member_from_json(seat, world_size);
    if (book.seats.contains(member.rank)) fail(Status::kProtocol, "a rank that two have");
    book.seats[member.rank] = {to_peer(member), seat.at("is_gone").get<bool>()};
  }
  for (const Json& rank : json.at("withdrawn")) book.withdrawn.insert(rank_of(rank, world_size));
  for (const auto& [name, count] : json.at("generations").items()) {
    book.generations[name_of(name)] = number_of<uint64_t>(count, 1, UINT64_MAX - 1);
  }
  if (json.contains("misled")) {  // older versions wrote none
    const Json& misled = json.at("misled");
    const auto size = number_of<int32_t>(misled.at("world_size"), -1, INT32_MAX);
    const bool has_name = size > 0 || misled.at("name") != "";  // who expects an open world may have none
    if (size != 0) book.misled = {has_name ? name_of(misled.at("name")) : "", size};
  }
  read_refused(json, book);
  check_seats(book, world_size);
  return book;
}

}  // namespace

std::string write_group_record(const GroupRecord& record) {
  return Json{{"job", record.job},
              {"protocol", record.protocol},
              {"world_size", record.world_size},
              {"book", book_to_json(record.book)}}
      .dump();
}

GroupRecord read_group_record(const std::string& text) {
  try {
    const PlainNumbers numbers;
    const Json json = Json::parse(text);
    GroupRecord record;
    record.job = text_of(json.at("job"), kLongestName);
    record.protocol = number_of<uint32_t>(json.at("protocol"), 0, UINT32_MAX);
    record.world_size = world_size_of(json.at("world_size"));
    record.book = book_from_json(json.at("book"), record.world_size);
    return record;
  } catch (const Json::exception&) {
    fail(Status::kProtocol, "it is no record of a group");
  }
}

void check_same_group(const std::string& where, GroupRecord& record, const wire::Join& join) {
  if (record.protocol != join.protocol) {
    fail(Status::kProtocol, "rendezvous \"{}\": this worker speaks version {} of the protocol, the group version {}",
         where, join.protocol, record.protocol);
  }
  if (record.job == join.job && record.world_size == join.world_size) return;
  RankTable theirs(where, record.job, record.world_size, record.book);
  EachStep each;
  each([&theirs, &join] { theirs.check(join); });
  record.book = theirs.book();
  each.check();
}

// Another world size is in the record already.
bool note_refused(const std::string& where, GroupRecord& record, const wire::Join& join, const Error& why) {
  if (record.book.has_met || record.protocol != join.protocol) return false;
  if (record.job == join.job && record.world_size != join.world_size) return true;
  RankTable theirs(where, record.job, record.world_size, record.book);
  theirs.note_refused(join, why);
  record.book = theirs.book();
  return true;
}

}  // namespace distag
