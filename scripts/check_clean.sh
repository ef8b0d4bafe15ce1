#!/bin/sh
# Runs the README's commands on a bare Debian 12: in a fresh chroot (mmdebstrap --variant=minbase) on a copy of what is
# committed. Needs root and the packages mmdebstrap and git. Takes about 30 minutes on 2 cores, and leaves nothing behind.
# usage: scripts/check_clean.sh [COMMAND...]      a command stands in one argument; default: samples/run.sh,
# tests/install/from_clone.sh and tests/run.sh. --container: in such a chroot as in a container as people have them, without
# CAP_SYS_ADMIN, CAP_NET_ADMIN, /dev/pts and /sys.
set -eu

cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "scripts/check_clean.sh: run it as root: it makes a chroot" >&2; exit 1; }
for tool in mmdebstrap git; do
  command -v $tool >/dev/null || { echo "scripts/check_clean.sh: $tool is missing: apt-get install $tool" >&2; exit 1; }
done
is_container=""
if [ "${1:-}" = --container ]; then
  is_container=yes
  shift
fi
[ $# -gt 0 ] || set -- samples/run.sh tests/install/from_clone.sh tests/run.sh

. scripts/chroot.sh
root=$(mktemp -d)
trap 'remove_chroot "$root"' EXIT
trap 'exit 1' HUP INT TERM

echo "==> a bare Debian 12 in $root"
make_chroot "$root"
git archive --prefix=distag/ HEAD | tar -x -C "$root/opt"

for command in "$@"; do
  echo "==> $command"
  if [ -n "$is_container" ]; then
    in_container "$root" "cd /opt/distag && $command"
  else
    in_chroot "$root" "cd /opt/distag && $command"
  fi
done
echo "==> passed: $*"
