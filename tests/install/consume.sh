#!/bin/sh
# Installs a built tree, moves the prefix, and builds and runs a program against it in two ways.
# usage: consume.sh CMAKE GENERATOR BUILD_TREE CONSUMER WORK_FOLDER C_COMPILER [SANITIZER]
set -eu
cmake=$1 generator=$2 build=$3 consumer=$4 work=$5 compiler=$6 sanitizer=${7:-}

flags=""
case $sanitizer in
  address) flags="-fsanitize=address,undefined" ;;
  thread) flags="-fsanitize=thread" ;;
esac
rm -rf "$work"
mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix

expected="$prefix/include/distag.h"
[ -f "$expected" ] || { echo "not installed: $expected"; exit 1; }
foreign=$(find "$prefix/include" -type f ! -name distag.h)
[ -z "$foreign" ] || { echo "installed, but no part of the interface: $foreign"; exit 1; }

"$cmake" -G "$generator" -S "$consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$compiler" \
  -DCMAKE_C_FLAGS="$flags" >"$work/configure.log"
"$cmake" --build "$work/cmake" >"$work/build.log"
"$work/cmake/consumer"

pc=$(dirname "$(find "$prefix" -name distag.pc)")
libdir=$(PKG_CONFIG_PATH=$pc pkg-config --variable=libdir distag)
# shellcheck disable=SC2046,SC2086
"$compiler" $flags "$consumer/main.c" -o "$work/by_pkg_config" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs distag)
LD_LIBRARY_PATH=$libdir "$work/by_pkg_config"
[ "$(PKG_CONFIG_PATH=$pc pkg-config --modversion distag)" = 0.3.0 ] || { echo "distag.pc has another version"; exit 1; }
rm -rf "$work"
