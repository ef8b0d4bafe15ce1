#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/file_size.h"
#include "base/own_descriptors.h"

namespace distag {
namespace {

// NFS, SMB, FUSE, AFS, Coda, Lustre, GPFS: several machines may share the folder, and a lock may hold on one alone.
constexpr unsigned long kShared[] = {0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x65735546,
                                     0x5346414F, 0x73757245, 0x0BD00BD0, 0x47504653};

bool is_shared(int descriptor) {
  struct statfs system = {};
  if (fstatfs(descriptor, &system) != 0) return true;
  const auto kind = static_cast<unsigned long>(system.f_type) & 0xFFFFFFFFUL;
  return std::find(std::begin(kShared), std::end(kShared), kind) != std::end(kShared);
}

}  // namespace

std::unique_ptr<FolderLock> FolderLock::try_take(const std::string& path) {
  const int descriptor =
      OwnDescriptors::open([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC); });
  if (descriptor < 0) {
    const int error = errno;
    const bool is_short = error == EMFILE || error == ENFILE || error == ENOMEM;
    fail(is_short ? Status::kOutOfMemory : Status::kInvalidState, "\"{}\" cannot be locked: {}", path,
         describe_file_error(error));
  }
  int error = 0;
  do {
    error = flock(descriptor, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EWOULDBLOCK) {
    OwnDescriptors::close(descriptor);
    return nullptr;
  }
  try {
    return std::unique_ptr<FolderLock>(new FolderLock(descriptor, error == 0 && !is_shared(descriptor)));
  } catch (...) {
    OwnDescriptors::close(descriptor);
    throw;
  }
}

FolderLock::~FolderLock() {
  flock(descriptor_, LOCK_UN);  // at once: a child forked just now may still have the descriptor
  OwnDescriptors::close(descriptor_);
}

}  // namespace distag
