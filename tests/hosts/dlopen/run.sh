#!/bin/sh
# A plugin by dlopen. usage: run.sh REPOSITORY LIBRARY WORK_FOLDER
set -eu
repository=$1 library=$2 work=$3
here=$repository/tests/hosts/dlopen
flags="-std=c11 -O1 -Wall -Wextra -Werror -I$repository/include"
rm -rf "$work"
mkdir -p "$work/copy1" "$work/copy2"

# shellcheck disable=SC2086
{
  cc $flags -shared -fPIC "$here/plugin.c" -o "$work/plugin.so" -ldl
  cc $flags -D_POSIX_C_SOURCE=200809L "$here/host.c" -o "$work/host" -ldl
  cc $flags -D_POSIX_C_SOURCE=200809L -DHOST_HAS_SODIUM -rdynamic "$here/host.c" -o "$work/host_with_sodium" -ldl
}
for copy in copy1 copy2; do
  cp "$work/plugin.so" "$work/$copy/plugin.so"
  cp "$library" "$work/$copy/libdistag.so.0"
done
"$work/host" times "$work/plugin.so" "$library"
DISTAG_LANE=0 DISTAG_SOCKET_ENGINE=zmq "$work/host" sockets "$work/plugin.so" "$library"
"$work/host_with_sodium" sodium "$work/plugin.so" "$library"
"$work/host" two "$work/copy1/plugin.so" "$work/copy1/libdistag.so.0" "$work/copy2/plugin.so" "$work/copy2/libdistag.so.0"
rm -rf "$work"
