#!/bin/sh
# The lines of README that lead from a clone to a program that links, as root on a bare system: it builds, installs into
# /usr/local, and builds and runs a program by pkg-config and one by CMake, with no variable set.
set -eu

cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lines=$(sed -n '/^scripts\/setup.sh samples/,/^sudo cmake --install/p' README.md | sed 's/sudo //g; s/ *#.*//')
[ "$(printf '%s\n' "$lines" | wc -l)" = 2 ] || { echo "tests/install/from_clone.sh: README has not the lines"; exit 1; }
sh -eux -c "$lines"
command -v pkg-config >/dev/null
cd "$work"
cc "$OLDPWD/tests/install/consumer/main.c" $(pkg-config --cflags --libs distag) -o by_pkg_config
./by_pkg_config
cmake -S "$OLDPWD/tests/install/consumer" -B by_cmake >configure.log
cmake --build by_cmake >build.log
by_cmake/consumer
echo "a program links by pkg-config and by CMake"
