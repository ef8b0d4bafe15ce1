#include "session/lending.h"

#include <array>

#include "base/error.h"
#include "base/process_memory.h"

namespace distag {

// ---- who lends ----

void LendingSeal::offer(wire::Hello& hello) {
  content_->owner = hello.incarnation;
  content_->reader = hello.wanted;
  hello.process = this_process();
  hello.seal = reinterpret_cast<uintptr_t>(content_.get());
}

void LendingSeal::accept(uint64_t challenge) {
  challenge_ = challenge;
  content_->challenge.store(challenge);
}

void LendingSeal::revoke() {
  challenge_ = 0;
  // A read-modify-write, so that nothing that is written to that memory next is seen before.
  content_->challenge.exchange(0);
}

bool LendingSeal::is_readable(const Frame& frame) {
  std::array<std::byte, 2> ends;
  const auto first = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(frame.data()));
  const std::array<MemoryPiece, 2> pieces = {{{first, ends.data(), 1}, {first + frame.size() - 1, ends.data() + 1, 1}}};
  return read_process_memory(this_process(), pieces);
}

// ---- who reads ----

namespace {

// As LendingSeal::Content lies in memory.
struct SealImage {
  uint64_t challenge = 0;
  Incarnation owner = 0;
  Incarnation reader = 0;
};

}  // namespace

uint64_t LentMemory::attach(const wire::Hello& hello, Incarnation reader, Random& random) {
  static_assert(sizeof(LendingSeal::Content) == sizeof(SealImage));
  process_ = hello.process;
  seal_ = hello.seal;
  owner_ = hello.incarnation;
  reader_ = reader;
  SealImage seal;
  const MemoryPiece piece{seal_, &seal, sizeof seal};
  const bool is_there = process_ > 0 && belongs_to_this_user(process_) && read_process_memory(process_, {&piece, 1}) &&
                        seal.owner == owner_ && seal.reader == reader_;
  // Kept over connections: chunks of the one before may still be on their way.
  if (is_there && challenge_ == 0) challenge_ = random.next() | 1;
  if (!is_there) challenge_ = 0;
  return challenge_;
}

bool LentMemory::read(const wire::Chunk& chunk, std::byte* out) const {
  if (challenge_ == 0) fail(Status::kProtocol, "a chunk in memory that was never lent");
  SealImage seal;
  // The seal last: it was whole when the bytes had been read.
  const std::array<MemoryPiece, 2> pieces = {
      {{chunk.address, out, static_cast<size_t>(chunk.size)}, {seal_, &seal, sizeof seal}}};
  return read_process_memory(process_, pieces) && seal.challenge == challenge_ && seal.owner == owner_ &&
         seal.reader == reader_;
}

}  // namespace distag
