#pragma once

#include "wire/message.h"

namespace distag {

// Which part of a worker takes a message. The table is the visitor below: a message without a line does not compile.
enum class Taker {
  kNobody,  // the session keeps these for itself, or a rendezvous has a connection of its own
  kGroup,
  kCalls,
  kReferences,
  kMeshes,
  kAutograd,
};

struct TakerOf {
  // connections
  Taker operator()(const wire::Hello&) const { return Taker::kNobody; }
  Taker operator()(const wire::Welcome&) const { return Taker::kNobody; }
  Taker operator()(const wire::Refuse&) const { return Taker::kNobody; }
  Taker operator()(const wire::Ack&) const { return Taker::kNobody; }
  Taker operator()(const wire::Ping&) const { return Taker::kNobody; }
  Taker operator()(const wire::Leave&) const { return Taker::kNobody; }
  Taker operator()(const wire::Chunk&) const { return Taker::kNobody; }
  // meeting, and the end of a group
  Taker operator()(const wire::Join&) const { return Taker::kNobody; }
  Taker operator()(const wire::Roster&) const { return Taker::kNobody; }
  Taker operator()(const wire::ShutdownPoll&) const { return Taker::kGroup; }
  Taker operator()(const wire::ShutdownAnswer&) const { return Taker::kGroup; }
  Taker operator()(const wire::ShutdownVerdict&) const { return Taker::kGroup; }
  // calls
  Taker operator()(const wire::Call&) const { return Taker::kCalls; }
  Taker operator()(const wire::Reply&) const { return Taker::kCalls; }
  Taker operator()(const wire::Cancel&) const { return Taker::kCalls; }
  Taker operator()(const wire::Credit&) const { return Taker::kCalls; }
  Taker operator()(const wire::WantCredit&) const { return Taker::kCalls; }
  // references
  Taker operator()(const wire::Fork&) const { return Taker::kReferences; }
  Taker operator()(const wire::Forked&) const { return Taker::kReferences; }
  Taker operator()(const wire::Drop&) const { return Taker::kReferences; }
  Taker operator()(const wire::Seek&) const { return Taker::kReferences; }
  Taker operator()(const wire::Sought&) const { return Taker::kReferences; }
  // meshes
  Taker operator()(const wire::Part&) const { return Taker::kMeshes; }
  Taker operator()(const wire::Calls&) const { return Taker::kMeshes; }
  Taker operator()(const wire::MeshEnd&) const { return Taker::kMeshes; }
  Taker operator()(const wire::Where&) const { return Taker::kMeshes; }
  Taker operator()(const wire::Here&) const { return Taker::kMeshes; }
  // distributed autograd
  Taker operator()(const wire::Joined&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Release&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Discover&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Discovered&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Go&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Entered&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Start&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Expect&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Grad&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Done&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Verdict&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Probe&) const { return Taker::kAutograd; }
  Taker operator()(const wire::ProbeAnswer&) const { return Taker::kAutograd; }
  Taker operator()(const wire::Holders&) const { return Taker::kAutograd; }
};

inline Taker taker_of(const wire::Body& body) { return std::visit(TakerOf{}, body); }

}  // namespace distag
