#pragma once

#include <sys/types.h>

#include <cstddef>

namespace distag::faults {

// As send() and recv(), by which libcurl speaks to etcd, with a fault point at each request and answer.
ssize_t send_request(int fd, const void* data, size_t size, int flags);
ssize_t receive_answer(int fd, void* room, size_t size, int flags);

}  // namespace distag::faults
