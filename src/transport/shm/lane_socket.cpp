#include "transport/shm/lane_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/own_descriptors.h"
#include "base/process.h"
#include "transport/socket/credentials.h"

namespace distag {
namespace {

constexpr const char* kSuffix = ".lane";
constexpr int kBacklog = 64;
constexpr char kWake = 'w';

int make_socket() {
  return OwnDescriptors::open([] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

template <typename Call>
ssize_t retry(Call&& call) {
  for (;;) {
    const ssize_t result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

bool is_nothing(ssize_t result) { return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK); }

// Room for the descriptors of a packet: one is expected, but the alignment leaves room for more.
union ControlRoom {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};

// A packet, and room for a descriptor that goes with it.
struct Envelope {
  Envelope(void* packet, size_t size) : bytes{packet, size} {
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = room.bytes;
    message.msg_controllen = sizeof room.bytes;
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;

  iovec bytes;
  msghdr message = {};
  ControlRoom room = {};  // ends in a flexible array
};

bool send_with(int socket, const void* packet, size_t size, int descriptor) {
  Envelope envelope(const_cast<void*>(packet), size);
  msghdr& message = envelope.message;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  const ssize_t sent = retry([&] { return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL); });
  return sent == static_cast<ssize_t>(size);
}

// Gives the last received descriptor, and closes all others.
int take_descriptors(msghdr& message, int& count) {
  int last = -1;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t bytes = part->cmsg_len - CMSG_LEN(0);
    for (size_t offset = 0; offset + sizeof(int) <= bytes; offset += sizeof(int)) {
      if (last >= 0) close(last);
      std::memcpy(&last, CMSG_DATA(part) + offset, sizeof last);
      ++count;
    }
  }
  return last;
}

// Receives a packet and its descriptor, or -1 if it has none. Gives the result of recvmsg; -2 for a packet that was cut
// off or had several descriptors.
ssize_t receive_with(int socket, void* packet, size_t size, int& descriptor) {
  Envelope envelope(packet, size);
  msghdr& message = envelope.message;
  descriptor = -1;
  const ssize_t got = retry([&] { return recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  if (got < 0) return got;
  int count = 0;
  descriptor = take_descriptors(message, count);
  if (count <= 1 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) return got;
  if (descriptor >= 0) close(std::exchange(descriptor, -1));
  return -2;
}

// Removes only a socket that a dead process left.
void clear_left(const SocketAddress& address) {
  struct stat status = {};
  if (lstat(address.path(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) {
    fail(Status::kInvalidState, "\"{}\" exists and is no socket: remove it", address.path());
  }
  const int fd = make_socket();
  const bool is_refused = fd >= 0 &&
                          ::connect(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0 &&
                          errno == ECONNREFUSED;
  if (fd >= 0) OwnDescriptors::close(fd);
  if (is_refused) unlink(address.path());
}

[[noreturn]] void fail_to_listen(const SocketAddress& address, int error) {
  Status status = Status::kInvalidArgument;
  if (error == EADDRINUSE) status = Status::kInvalidState;
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) status = Status::kOutOfMemory;
  fail(status, "cannot listen at \"{}\": {}", address.path(), std::strerror(error));
}

}  // namespace

std::optional<SocketAddress> lane_address(const std::string& endpoint) {
  if (!endpoint.starts_with("ipc:///")) return std::nullopt;
  SocketAddress result = parse_address(endpoint, false);
  auto& address = reinterpret_cast<sockaddr_un&>(result.address);
  const std::string path = std::string(address.sun_path) + kSuffix;
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  result.endpoint += kSuffix;
  return result;
}

FileIdentity identify(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino, status.st_ctim.tv_sec * kSecond + status.st_ctim.tv_nsec};
}

LaneSocket::LaneSocket(int fd) : fd_(fd), generation_(process_generation()) {}

LaneSocket::~LaneSocket() {
  if (fd_ < 0) return;
  if (generation_ == process_generation()) shutdown(fd_, SHUT_RDWR);
  OwnDescriptors::close(fd_);
}

LaneSocket LaneSocket::connect(const SocketAddress& address) {
  LaneSocket socket(make_socket());
  if (socket.fd_ < 0) fail(Status::kOutOfMemory, "no socket for a lane: {}", std::strerror(errno));
  const auto* const to = reinterpret_cast<const sockaddr*>(&address.address);
  if (retry([&] { return ::connect(socket.fd_, to, address.length); }) != 0) {
    fail(Status::kDisconnected, "no worker takes lanes at \"{}\": {}", address.path(), std::strerror(errno));
  }
  return socket;
}

bool LaneSocket::is_of_same_user() const { return distag::is_of_same_user(fd_); }

pid_t LaneSocket::other_process() const {
  const std::optional<ucred> other = credentials_at(fd_);
  return other ? other->pid : 0;
}

bool LaneSocket::send(const LaneOffer& offer, int memory_fd) { return send_with(fd_, &offer, sizeof offer, memory_fd); }

bool LaneSocket::send(const ShownBlock& block, int memory_fd) {
  if (memory_fd >= 0) return send_with(fd_, &block, sizeof block, memory_fd);
  return retry([&] { return ::send(fd_, &block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL); }) == sizeof block;
}

bool LaneSocket::send(const LaneAnswer& answer) {
  return retry([&] { return ::send(fd_, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL); }) == sizeof answer;
}

// Fails only when the other side has unread wakes enough, or is gone.
void LaneSocket::wake() noexcept {
  static_cast<void>(retry([this] { return ::send(fd_, &kWake, sizeof kWake, MSG_DONTWAIT | MSG_NOSIGNAL); }));
}

LaneSocket::Got LaneSocket::receive(LaneOffer& offer, int& memory_fd) {
  const ssize_t got = receive_with(fd_, &offer, sizeof offer, memory_fd);
  if (got == sizeof offer && memory_fd >= 0) return Got::kPacket;
  if (memory_fd >= 0) close(std::exchange(memory_fd, -1));
  return got == -1 && is_nothing(got) ? Got::kNothing : Got::kEnd;
}

LaneSocket::Got LaneSocket::receive(LaneAnswer& answer) {
  const ssize_t got = retry([&] { return recv(fd_, &answer, sizeof answer, MSG_DONTWAIT | MSG_TRUNC); });
  if (is_nothing(got)) return Got::kNothing;
  return got == sizeof answer ? Got::kPacket : Got::kEnd;
}

LaneSocket::Got LaneSocket::receive_packet(ShownBlock& block, int& memory_fd) noexcept {
  ssize_t got = receive_with(fd_, &block, sizeof block, memory_fd);
  // ECONNRESET: the other side has left packets of ours unread; its own follow after that error.
  if (got == -1 && errno == ECONNRESET) got = receive_with(fd_, &block, sizeof block, memory_fd);
  if (got == -1 && is_nothing(got)) return Got::kNothing;
  if (got == sizeof block && block.id != 0 && (block.size == 0) == (memory_fd < 0)) return Got::kPacket;
  if (got == sizeof kWake && memory_fd < 0) {
    block = {};
    return Got::kPacket;
  }
  if (memory_fd >= 0) close(std::exchange(memory_fd, -1));
  return Got::kEnd;
}

LaneListener::LaneListener(const SocketAddress& address) {
  clear_left(address);
  fd_ = make_socket();
  if (fd_ < 0) fail_to_listen(address, errno);
  int error = 0;
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0) {
    error = errno;
  } else {
    path_ = address.path();
    if (listen(fd_, kBacklog) != 0) error = errno;
  }
  if (error == 0) return;
  if (!path_.empty()) unlink(path_.c_str());
  OwnDescriptors::close(fd_);
  fail_to_listen(address, error);
}

LaneListener::~LaneListener() {
  unlink(path_.c_str());
  OwnDescriptors::close(fd_);
}

std::optional<LaneSocket> LaneListener::accept() {
  const ssize_t fd = retry([this] {
    return OwnDescriptors::open([this] { return accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
  });
  if (fd < 0) return std::nullopt;
  return LaneSocket(static_cast<int>(fd));
}

}  // namespace distag
