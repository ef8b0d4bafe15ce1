#!/bin/sh
# Runs the two README commands on a bare Debian 12: in a fresh chroot (mmdebstrap --variant=minbase) on a copy of what is
# committed. Needs root and the packages mmdebstrap and git. Takes about 30 minutes on 2 cores, and leaves nothing behind.
# usage: scripts/check_clean.sh [COMMAND...]      a command stands in one argument; default: samples/run.sh tests/run.sh
set -eu

cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "scripts/check_clean.sh: run it as root: it makes a chroot" >&2; exit 1; }
for tool in mmdebstrap git; do
  command -v $tool >/dev/null || { echo "scripts/check_clean.sh: $tool is missing: apt-get install $tool" >&2; exit 1; }
done
[ $# -gt 0 ] || set -- samples/run.sh tests/run.sh

root=$(mktemp -d)
leave() {
  # The file systems go before the tree does: nothing of this machine may be removed through them.
  for place in dev/shm dev proc; do
    if mountpoint -q "$root/$place"; then umount "$root/$place" || umount -l "$root/$place"; fi
  done
  rm -rf --one-file-system "$root"
}
trap leave EXIT
trap 'exit 1' HUP INT TERM

echo "==> a bare Debian 12 in $root"
mmdebstrap --quiet --variant=minbase bookworm "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 devices "$root/dev"
for device in null zero full random urandom tty; do
  [ ! -e "/dev/$device" ] || cp -a "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -m 1777 "$root/dev/shm"
mount -t tmpfs -o mode=1777 shared "$root/dev/shm"
cp /etc/resolv.conf "$root/etc/resolv.conf"
git archive --prefix=distag/ HEAD | tar -x -C "$root/opt"

for command in "$@"; do
  echo "==> $command"
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    chroot "$root" sh -c "cd /opt/distag && $command"
done
echo "==> passed: $*"
