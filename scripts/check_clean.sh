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

. scripts/chroot.sh
root=$(mktemp -d)
trap 'remove_chroot "$root"' EXIT
trap 'exit 1' HUP INT TERM

echo "==> a bare Debian 12 in $root"
make_chroot "$root"
git archive --prefix=distag/ HEAD | tar -x -C "$root/opt"

for command in "$@"; do
  echo "==> $command"
  in_chroot "$root" "cd /opt/distag && $command"
done
echo "==> passed: $*"
