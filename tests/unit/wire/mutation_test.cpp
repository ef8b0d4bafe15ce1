#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "sample_messages.h"

namespace distag::wire {
namespace {

// The frames that a transport could hand over after `mutate` changed the bytes. Each frame is memory of exactly its
// size, so that AddressSanitizer sees a read past its end.
Frames mutated(const Encoded& encoded, SeededRandom& random) {
  Frames frames{encoded.header};
  frames.insert(frames.end(), encoded.payload.begin(), encoded.payload.end());
  const size_t chosen = random.next() % 8 == 0 ? random.next() % frames.size() : 0;
  std::vector<std::byte> bytes(frames[chosen].data(), frames[chosen].data() + frames[chosen].size());
  const uint64_t changes = 1 + random.next() % 4;
  for (uint64_t i = 0; i < changes && !bytes.empty(); ++i) {
    const size_t at = random.next() % bytes.size();
    switch (random.next() % 6) {
      case 0:
        bytes[at] ^= static_cast<std::byte>(1u << random.next() % 8);
        break;
      case 1:
        bytes[at] = static_cast<std::byte>(random.next());
        break;
      case 2:
        bytes[at] = std::byte{0xFF};
        break;
      case 3:
        bytes[at] = std::byte{0};
        break;
      case 4:
        if (bytes.size() >= at + 4) {
          const uint32_t number = static_cast<uint32_t>(random.next() % (2 * bytes.size()));
          std::memcpy(bytes.data() + at, &number, sizeof number);
        }
        break;
      default:
        bytes.resize(random.next() % 2 == 0 ? at : bytes.size() + 1 + random.next() % 16);
    }
  }
  frames[chosen] = Frame::copy_of(bytes.data(), bytes.size());
  if (random.next() % 64 == 0 && frames.size() > 1) frames.pop_back();
  return frames;
}

TEST(Mutation, ChangedBytesAreTakenOrRefusedAndNeverMore) {
  std::vector<Encoded> encoded;
  for (const Body& body : all_bodies()) encoded.push_back(encode(Message{4, 3, {{1, 0}}, body}, Limits()));
  // A smaller call, whose header is mostly structure.
  encoded.push_back(encode(Message{4, 3, {}, Call{{1, 2}, "f", {Value(floats({2, 3}))}, 5, {}, "l"}}, Limits()));

  SeededRandom random(20240607);
  int taken = 0;
  int refused = 0;
  for (int i = 0; i < 100000; ++i) {
    Frames frames = mutated(encoded[random.next() % encoded.size()], random);
    const Frame header = frames.front();
    frames.erase(frames.begin());
    try {
      Message message = decode(header, frames, Limits());
      // A message that was taken is like any other.
      encode(message, Limits());
      ++taken;
    } catch (const Error& error) {
      ASSERT_EQ(error.status(), Status::kProtocol) << error.message();
      ++refused;
    }
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace distag::wire
