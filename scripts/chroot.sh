# Bare Debian 12 in a folder, for scripts that run as root. Read by `.`; needs mmdebstrap.

make_chroot() { # FOLDER [MMDEBSTRAP OPTIONS...]
  chroot_folder=$1
  shift
  mmdebstrap --quiet --variant=minbase "$@" bookworm "$chroot_folder"
  mount -t proc proc "$chroot_folder/proc"
  mount -t tmpfs -o mode=755 devices "$chroot_folder/dev"
  for device in null zero full random urandom tty; do
    [ ! -e "/dev/$device" ] || cp -a "/dev/$device" "$chroot_folder/dev/$device"
  done
  ln -s /proc/self/fd "$chroot_folder/dev/fd"
  mkdir -m 1777 "$chroot_folder/dev/shm"
  mount -t tmpfs -o mode=1777 shared "$chroot_folder/dev/shm"
  cp /etc/resolv.conf "$chroot_folder/etc/resolv.conf"
}

in_chroot() { # FOLDER COMMAND, in which the environment of this machine does not show
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$1" sh -ec "$2"
}

in_container() { # FOLDER COMMAND: the same without the capabilities that containers do not have
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    setpriv --bounding-set=-sys_admin,-net_admin,-sys_ptrace,-sys_resource,-sys_module,-sys_time --inh-caps=-all \
    chroot "$1" sh -ec "$2"
}

# The processes that run in a chroot.
processes_of_chroot() { # FOLDER
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/root" 2>/dev/null)" != "$1" ] || echo "${process#/proc/}"
  done
}

# Its processes go first, then the file systems, then the tree: nothing of this machine may be removed through them.
remove_chroot() { # FOLDER
  while processes=$(processes_of_chroot "$1") && [ -n "$processes" ]; do
    # shellcheck disable=SC2086
    kill -KILL $processes 2>/dev/null || true
  done
  for place in dev/shm dev proc; do
    if mountpoint -q "$1/$place"; then umount "$1/$place" || umount -l "$1/$place"; fi
  done
  rm -rf --one-file-system "$1"
}
