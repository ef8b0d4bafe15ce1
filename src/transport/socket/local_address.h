#pragma once

#include <cstdint>
#include <string>

namespace distag {

// A listening socket in this user's folder, and its removal. Any thread.
class LocalAddress {
 public:
  // Throws as LocalServer.
  explicit LocalAddress(uint64_t id);
  ~LocalAddress();  // unlinks the socket, but not in a forked child
  LocalAddress(const LocalAddress&) = delete;
  LocalAddress& operator=(const LocalAddress&) = delete;

  int fd() const { return fd_; }

 private:
  bool listen_below(const std::string& base, const std::string& name);

  int fd_ = -1;
  std::string folder_;
  std::string path_;
  std::string why_not_;
  int64_t maker_ = 0;
};

}  // namespace distag
