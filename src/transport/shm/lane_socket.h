#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "transport/shm/lane_memory.h"
#include "transport/socket/address.h"

namespace distag {

// The address for lanes to "ipc:///path": a socket beside it, at "/path.lane". nullopt: the endpoint is not of ipc, or
// too long for the system.
std::optional<SocketAddress> lane_address(const std::string& endpoint);

// Identifies a file as long as it exists: each incarnation of a worker makes its own.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t changed = 0;

  bool operator==(const FileIdentity&) const = default;
};
FileIdentity identify(const std::string& path);

// The packets on the socket of a lane, in the byte order of the machine. The dialling side sends the offer, with the
// descriptor of the memory; the answer says whether it is accepted. On an open lane, packets of one byte wake the other
// side. The dialling side also shows the blocks of its loans, each with its descriptor, and says which of them are
// gone.
struct LaneOffer {
  uint64_t magic = 0;
  uint32_t version = 0;
  LaneSizes sizes;
  uint32_t reserved = 0;
  uint64_t worker = 0;  // a unique number of the dialling worker; 0: not given
};
struct LaneAnswer {
  uint64_t magic = 0;
  uint32_t version = 0;  // of the answering side
  uint32_t is_taken = 0;
  uint64_t worker = 0;  // the answering worker
};
struct ShownBlock {
  uint64_t id = 0;    // counted from 1
  uint64_t size = 0;  // of the memfd; 0: the block is gone
};
inline constexpr size_t kMaxShownBlocks = 512;              // at a time
inline constexpr uint64_t kLaneMagic = 0x31656e616c677464;  // "dtglane1"
inline constexpr uint32_t kLaneVersion = 3;

// The worker at the other end: the number that it gives, and its process according to the system.
struct LanePeer {
  uint64_t worker = 0;
  pid_t process = 0;  // 0: not visible to this process

  bool is_known() const { return worker != 0 && process != 0; }
  bool operator==(const LanePeer&) const = default;
};

// The socket of one lane: SEQPACKET, and no thread blocks on it. The destructor closes it; the other side notices that
// even while a forked child holds a copy.
class LaneSocket {
 public:
  LaneSocket() = default;
  explicit LaneSocket(int fd);
  LaneSocket(LaneSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), generation_(std::exchange(other.generation_, 0)) {}
  LaneSocket& operator=(LaneSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(generation_, other.generation_);
    return *this;
  }
  ~LaneSocket();

  // Throws DISCONNECTED when no worker accepts lanes there, OUT_OF_MEMORY.
  static LaneSocket connect(const SocketAddress& address);

  int fd() const { return fd_; }
  // Whether the process at the other end is of the same user.
  bool is_of_same_user() const;
  // The process that has dialled, or that has listened.
  pid_t other_process() const;

  bool send(const LaneOffer& offer, int memory_fd);
  bool send(const LaneAnswer& answer);
  void wake() noexcept;
  // False when the socket has no room now, or is gone. Sends `memory_fd` along unless it is -1.
  bool send(const ShownBlock& block, int memory_fd);

  enum class Got { kPacket, kNothing, kEnd };
  // kEnd also for a packet that is no answer, or no offer with one descriptor. The caller closes `memory_fd`.
  Got receive(LaneOffer& offer, int& memory_fd);
  Got receive(LaneAnswer& answer);
  // For an open lane: a wake, for which the id is 0, or a block. kEnd also for an invalid packet, or a descriptor with
  // the wrong one. `memory_fd` is -1, or the caller closes it.
  Got receive_packet(ShownBlock& block, int& memory_fd) noexcept;

 private:
  int fd_ = -1;
  uint32_t generation_ = 0;
};

// A socket at which a worker accepts lanes. The destructor removes the path.
class LaneListener {
 public:
  // Throws INVALID_STATE when the path is in use, OUT_OF_MEMORY when descriptors run out, else INVALID_ARGUMENT.
  explicit LaneListener(const SocketAddress& address);
  ~LaneListener();
  LaneListener(const LaneListener&) = delete;
  LaneListener& operator=(const LaneListener&) = delete;

  int fd() const { return fd_; }
  // nullopt: no dialler waits, or errno of accept says why.
  std::optional<LaneSocket> accept();

 private:
  int fd_ = -1;
  std::string path_;
};

}  // namespace distag
