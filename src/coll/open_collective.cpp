#include "coll/open_collective.h"

#include <algorithm>
#include <utility>

#include "base/violation.h"
#include "coll/mesh.h"
#include "group/shared.h"

namespace distag {
namespace {

// Room for the message around a piece.
constexpr size_t kMostHeaderBytes = size_t{64} << 10;

size_t byte_size(const Tensors& pieces) {
  size_t bytes = 0;
  for (const Tensor& piece : pieces) bytes += piece.byte_size();
  return bytes;
}

}  // namespace

std::vector<int64_t> OpenCollective::missing() const {
  assert_on_loop(mesh->loop());
  std::vector<int64_t> positions;
  for (const auto& [part, exchange] : exchanges) {
    for (const auto& [position, expected] : exchange.expected) positions.push_back(position);
  }
  return positions;
}

// Each member begins with a different receiver.
void OpenCollective::send(uint32_t part, const std::map<int64_t, Tensors>& outgoing) {
  assert_on_loop(mesh->loop());
  const size_t own_limit = mesh->place().peer(mesh->position()).max_message_bytes;
  for (int64_t i = 1; i < mesh->shape().count(); ++i) {
    const auto piece = outgoing.find((mesh->position() + i) % mesh->shape().count());
    if (piece == outgoing.end()) continue;
    const Peer& to = mesh->place().peer(piece->first);
    const size_t limit = to.max_message_bytes == 0 ? own_limit : std::min<size_t>(own_limit, to.max_message_bytes);
    const size_t bytes = byte_size(piece->second);
    if (bytes + kMostHeaderBytes > limit) {
      fail(Status::kInvalidArgument, "{}: a piece of {} bytes for {} is too large: raise max_message_bytes of both",
           text, bytes, describe_peer(to));
    }
    Values pieces;
    for (const Tensor& tensor : piece->second) pieces.emplace_back(tensor);
    if (is_counted) mesh->parts().stats.bytes_sent += bytes;
    if (move) move->bytes += bytes;
    ++mesh->parts().stats.parts_sent;
    mesh->parts().end.send_part(piece->first, wire::Part{mesh->id(), line, number, part, hash, std::move(pieces)});
  }
}

// Takes the parts that came before this member was at the step. Parts of a different program are not taken: the
// comparison tells its member.
void OpenCollective::take_early(uint32_t part) {
  assert_on_loop(mesh->loop());
  MeshLines& lines = mesh->parts().lines;
  const auto kept = lines.take_early(lines.of(line), number, part);
  for (const auto& [from, message] : kept) {
    if (is_over || message.hash != hash) continue;
    try {
      take(part, from, message.pieces);
    } catch (const Violation& error) {
      mesh->place().environment.group.fence(mesh->place().peer(from).incarnation, error);
    }
  }
}

void OpenCollective::exchange(uint32_t part, std::map<int64_t, Tensors> outgoing,
                              std::map<int64_t, std::vector<Expected>> expected,
                              UniqueFunction<void(std::map<int64_t, Tensors>)> then) {
  assert_on_loop(mesh->loop());
  const auto self = shared_from_this();
  const bool is_complete = expected.empty();
  Exchange& exchange = exchanges[part];
  exchange.expected = std::move(expected);
  exchange.then = std::move(then);
  if (const auto mine = outgoing.find(mesh->position()); mine != outgoing.end()) {
    exchange.came.emplace(mine->first, mine->second);
  }
  send(part, outgoing);
  take_early(part);
  if (is_over) return;
  if (is_complete) {
    auto done = std::move(exchange.then);
    done(std::move(exchange.came));
    return;
  }
  for (const int64_t position : missing()) {
    const Error* left = mesh->parts().end.left(position, line);
    if (left == nullptr) continue;
    mesh->parts().end.end_behind(*left);
    return;
  }
}

void OpenCollective::take(uint32_t part, int64_t from, const Values& pieces) {
  assert_on_loop(mesh->loop());
  Exchange& exchange = exchanges.at(part);
  const auto expected = exchange.expected.find(from);
  if (expected == exchange.expected.end() || expected->second.size() != pieces.size()) {
    violation("{} pieces for part {} of call {}, {}, which it has not, or has already", pieces.size(), part, number,
              text);
  }
  Tensors came;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Tensor& piece = pieces[i].as_tensor();
    const Expected& wanted = expected->second[i];
    Dims shape = piece.shape();
    if (wanted.open_dim < shape.size() && shape.size() == wanted.shape.size()) {
      shape[wanted.open_dim] = wanted.shape[wanted.open_dim];
    }
    if (piece.dtype() != wanted.dtype || shape != wanted.shape) {
      violation("{} for part {} of call {}, {}", describe(piece), part, number, text);
    }
    if (is_counted) mesh->parts().stats.bytes_received += piece.byte_size();
    mesh->parts().stats.hold(piece.byte_size());
    bytes_held += piece.byte_size();
    came.push_back(piece);
  }
  exchange.expected.erase(expected);
  exchange.came.emplace(from, std::move(came));
  if (!exchange.expected.empty()) return;
  const auto self = shared_from_this();
  auto then = std::move(exchange.then);
  auto all = std::move(exchange.came);
  try {
    then(std::move(all));
  } catch (...) {
    fail_alone(current_error());
  }
}

namespace {

// Work of a call on the executor. Its return to the loop needs no memory.
struct Away {
  std::shared_ptr<OpenCollective> open;
  UniqueFunction<Tensors()> make;
  UniqueFunction<void(Tensors)> then;
  Tensors made;
  std::optional<Error> error;
  TaskPlace place;

  void run() noexcept {
    try {
      made = make();
    } catch (...) {
      error = current_error();
    }
    make.reset();
  }
  void go_on() {
    if (open->is_over) return;
    try {
      if (error) throw *error;
      then(std::move(made));
    } catch (...) {
      open->fail_alone(current_error());
    }
  }
};

}  // namespace

void OpenCollective::work(size_t bytes, UniqueFunction<Tensors()> make, UniqueFunction<void(Tensors)> then) {
  assert_on_loop(mesh->loop());
  constexpr size_t kOnTheLoop = 64 << 10;
  if (bytes <= kOnTheLoop) return then(make());
  auto away = std::make_shared<Away>();
  away->open = shared_from_this();
  away->make = std::move(make);
  away->then = std::move(then);
  mesh->compute().post_or_drop([away = std::move(away)] {
    away->run();
    away->open->mesh->run(away->place, [away] { away->go_on(); });
  });
}

void OpenCollective::reduce(Reduction reduction, std::vector<Operand> operands, UniqueFunction<void(Tensor)> then) {
  assert_on_loop(mesh->loop());
  const size_t bytes = operands.front().value.byte_size();
  work(
      bytes,
      [reduction, operands = std::move(operands)]() mutable { return Tensors{fold(reduction, std::move(operands))}; },
      [then = std::move(then)](Tensors made) mutable { then(std::move(made.front())); });
}

void OpenCollective::complete(Tensor result) {
  assert_on_loop(mesh->loop());
  if (is_over) return;
  const auto self = shared_from_this();
  mesh->parts().calls.finish(self);
  future->complete(std::move(result));
}

void OpenCollective::fail_alone(Error error) {
  assert_on_loop(mesh->loop());
  if (!is_over) mesh->end_alone(std::move(error), line);
}

void OpenCollective::give_up(const Error& why) {
  assert_on_loop(mesh->loop());
  trace(why.status());
  is_over = true;
  exchanges.clear();
  stop_timer();
}

void OpenCollective::stop_timer() {
  assert_on_loop(mesh->loop());
  if (timer != 0) mesh->loop().cancel_timer(std::exchange(timer, 0));
}

// The event begins when the call began here, which differs from member to member.
void OpenCollective::trace(Status status) const {
  assert_on_loop(mesh->loop());
  TraceEvent event;
  event.category = TraceCategory::kCollective;
  event.status = status;
  event.begin = begun;
  event.end = mesh->loop().now();
  event.bytes = move ? move->bytes : 0;
  mesh->place().environment.group.shared()->trace.add_ended(event, text, line);
}

}  // namespace distag
