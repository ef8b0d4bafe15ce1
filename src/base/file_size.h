#pragma once

#include <sys/types.h>

#include <cstddef>

namespace distag {

// The only calls of the library that make a file longer. Above the limit of file sizes (RLIMIT_FSIZE, which the host
// may lower at any time) they fail with EFBIG: the signal SIGXFSZ, which would end the host, is consumed undelivered.
// Any thread.

// ftruncate. 0, or -1 and errno.
int set_file_size(int descriptor, off_t size);
// posix_fallocate from the start of the file. 0, or the error.
int allocate_file(int descriptor, off_t size);
// write. The bytes that were written, or -1 and errno.
ssize_t write_to_file(int descriptor, const void* data, size_t size);

// strerror, and the remedy where a limit of this process is the reason.
const char* describe_file_error(int error);

}  // namespace distag
