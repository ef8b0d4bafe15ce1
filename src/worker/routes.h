#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <variant>

#include "wire/message.h"

namespace distag {

// The part of a worker that takes a message.
enum class Taker {
  kNobody,  // the session handles these itself, or a rendezvous on a connection of its own
  kGroup,
  kCalls,
  kReferences,
  kMeshes,
  kAutograd,
};

// The treatment of a message that cannot be handled without memory. Refused: its sender is told, and what the message
// is about ends. Waits: the message comes again until there is memory. Small messages that must not be lost wait: those
// of the group, of references, of credit, and of the holders of a context.
enum class Without { kRefused, kWaits };

struct Route {
  size_t type = SIZE_MAX;  // of wire::Body
  Taker taker = Taker::kNobody;
  Without memory = Without::kRefused;
};

template <typename Message>
inline constexpr size_t kTypeOf = [] {
  return []<typename... All>(const std::variant<All...>*) {
    size_t type = 0;
    static_cast<void>(((std::is_same_v<Message, All> || (++type, false)) || ...));
    return type;
  }(static_cast<const wire::Body*>(nullptr));
}();

template <typename Message>
constexpr Route route(Taker taker, Without memory = Without::kRefused) {
  return {kTypeOf<Message>, taker, memory};
}

// A row for each message; a message without a row does not compile.
inline constexpr std::array kRoutes = {
    // connections
    route<wire::Hello>(Taker::kNobody),
    route<wire::Welcome>(Taker::kNobody),
    route<wire::Refuse>(Taker::kNobody),
    route<wire::Ack>(Taker::kNobody),
    route<wire::Ping>(Taker::kNobody),
    route<wire::Leave>(Taker::kNobody),
    route<wire::Chunk>(Taker::kNobody),
    // meeting, and the end of a group
    route<wire::Join>(Taker::kNobody),
    route<wire::Roster>(Taker::kNobody),
    route<wire::ShutdownPoll>(Taker::kGroup, Without::kWaits),
    route<wire::ShutdownAnswer>(Taker::kGroup, Without::kWaits),
    route<wire::ShutdownVerdict>(Taker::kGroup, Without::kWaits),
    // calls
    route<wire::Call>(Taker::kCalls),
    route<wire::Reply>(Taker::kCalls),
    route<wire::Cancel>(Taker::kCalls),
    route<wire::Credit>(Taker::kCalls, Without::kWaits),
    route<wire::WantCredit>(Taker::kCalls, Without::kWaits),
    // references
    route<wire::Fork>(Taker::kReferences, Without::kWaits),
    route<wire::Forked>(Taker::kReferences, Without::kWaits),
    route<wire::Drop>(Taker::kReferences, Without::kWaits),
    route<wire::Seek>(Taker::kReferences, Without::kWaits),
    route<wire::Sought>(Taker::kReferences, Without::kWaits),
    // meshes
    route<wire::Part>(Taker::kMeshes),
    route<wire::Calls>(Taker::kMeshes),
    route<wire::MeshEnd>(Taker::kMeshes),
    route<wire::Where>(Taker::kMeshes),
    route<wire::Here>(Taker::kMeshes),
    // distributed autograd
    route<wire::Joined>(Taker::kAutograd, Without::kWaits),
    route<wire::Release>(Taker::kAutograd, Without::kWaits),
    route<wire::Discover>(Taker::kAutograd),
    route<wire::Discovered>(Taker::kAutograd),
    route<wire::Go>(Taker::kAutograd),
    route<wire::Entered>(Taker::kAutograd),
    route<wire::Start>(Taker::kAutograd),
    route<wire::Expect>(Taker::kAutograd),
    route<wire::Grad>(Taker::kAutograd),
    route<wire::Done>(Taker::kAutograd),
    route<wire::Verdict>(Taker::kAutograd),
    route<wire::Probe>(Taker::kAutograd),
    route<wire::ProbeAnswer>(Taker::kAutograd),
    route<wire::Holders>(Taker::kAutograd),
};

// The rows, at the indices of their types.
inline constexpr auto kRouteOfType = [] {
  static_assert(kRoutes.size() == std::variant_size_v<wire::Body>, "a message has no row, or two");
  std::array<Route, kRoutes.size()> sorted = {};
  for (const Route& row : kRoutes) sorted[row.type] = row;
  for (size_t type = 0; type < sorted.size(); ++type) {
    if (sorted[type].type != type) throw "a message has two rows, and another one none";
  }
  return sorted;
}();

inline const Route& route_of(const wire::Body& body) { return kRouteOfType[body.index()]; }

}  // namespace distag
