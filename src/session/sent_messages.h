#pragma once

#include <cstdint>
#include <optional>

#include "base/fifo.h"
#include "session/session.h"
#include "wire/codec.h"

namespace distag {

// The numbered messages of one stream that the peer has not acknowledged, in order and without a gap. Each connection
// begins with the first of them. The current connection has taken those before next_to_transmit(); an earlier
// connection or none has taken the others. On the loop.
class SentMessages {
 public:
  struct Sent {
    uint64_t number;
    Frame header;
    Frames payload;
    size_t bytes;
    size_t chunk_bytes;  // size of a piece of a larger message, otherwise 0
    Task on_acknowledged;
    bool is_transmitted = false;  // at least once
    size_t bytes_ahead = 0;       // bytes of that larger message behind this piece
  };

  explicit SentMessages(SessionStats& stats) : stats_(stats) {}

  uint64_t last_number() const { return last_number_; }
  bool is_empty() const { return unacknowledged_.empty(); }
  size_t size() const { return unacknowledged_.size(); }
  size_t chunk_bytes() const { return chunk_bytes_; }

  // The number of `sent` must be the one after the last.
  void add(Sent sent);
  Sent& last() { return unacknowledged_.back(); }  // the last one added
  // The first message that this connection has not taken; nullptr: the connection has taken all.
  Sent* next_to_transmit();
  bool has_all_transmitted() const { return next_to_transmit_ == last_number_ + 1; }
  void note_transmitted(Sent& sent);
  // A new connection sends all messages again.
  void rewind();
  // Takes out the first message if its number is not above `number`.
  std::optional<Sent> take_acknowledged(uint64_t number);
  // Drops all messages.
  void clear();

 private:
  SessionStats& stats_;
  Fifo<Sent> unacknowledged_;
  uint64_t last_number_ = 0;
  uint64_t next_to_transmit_ = 1;
  size_t chunk_bytes_ = 0;
};

}  // namespace distag
