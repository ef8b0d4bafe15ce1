#!/bin/sh
# Installs a built tree, moves the prefix, and builds and runs a program against it: by find_package and by pkg-config,
# with the shared library and with the archive.
# usage: consume.sh CMAKE GENERATOR BUILD_TREE CONSUMER WORK_FOLDER C_COMPILER CXX_COMPILER [SANITIZER]
set -eu
cmake=$1 generator=$2 build=$3 consumer=$4 work=$5 compiler=$6 cxx_compiler=$7 sanitizer=${8:-}

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

for expected in include/distag.h include/distag.hpp include/distag/ops.hpp share/distag/api.json share/distag/schemas/message.fbs; do
  [ -f "$prefix/$expected" ] || { echo "not installed: $expected"; exit 1; }
done
if [ -f "$build/tools/distag" ]; then
  for expected in bin/distag share/man/man1/distag.1 share/bash-completion/completions/distag; do
    [ -f "$prefix/$expected" ] || { echo "not installed: $expected"; exit 1; }
  done
  "$prefix/bin/distag" version
fi
if [ -d "$build/docs/man" ]; then
  for expected in man7/distag.7 man3/distag_tensor.3 man3/distag_call.3 man3/distag_backward.3; do
    [ -f "$prefix/share/man/$expected" ] || { echo "not installed: $expected"; exit 1; }
  done
fi
foreign=$(find "$prefix/include" -type f ! -name distag.h ! -name '*.hpp')
[ -z "$foreign" ] || { echo "installed, but no part of the interface: $foreign"; exit 1; }

"$cmake" -G "$generator" -S "$consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$compiler" \
  -DCMAKE_CXX_COMPILER="$cxx_compiler" -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" >"$work/configure.log"
"$cmake" --build "$work/cmake" >"$work/build.log"
"$work/cmake/consumer"
"$work/cmake/consumer_cpp"
archive=$(find "$prefix" -name libdistag.a)
[ -z "$archive" ] || "$work/cmake/consumer_static"

pc=$(dirname "$(find "$prefix" -name distag.pc)")
libdir=$(PKG_CONFIG_PATH=$pc pkg-config --variable=libdir distag)
# shellcheck disable=SC2046,SC2086
"$compiler" $flags "$consumer/main.c" -o "$work/by_pkg_config" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs distag)
LD_LIBRARY_PATH=$libdir "$work/by_pkg_config"
[ "$(PKG_CONFIG_PATH=$pc pkg-config --modversion distag)" = 0.3.0 ] || { echo "distag.pc has another version"; exit 1; }

# The library names what it calls, so that no program that loads it has to. distag looks the
# functions of libzmq up among these.
for needed in libzmq libsodium libisal; do
  readelf -d "$libdir/libdistag.so" | grep -q "(NEEDED).*\[$needed\.so" ||
    { echo "libdistag.so needs no $needed"; exit 1; }
done

# The archive: its own names are the interface's, and a program with it needs no libdistag.so. A sanitizer's has none.
if [ -n "$archive" ]; then
  foreign=$(nm -g --defined-only "$archive" | awk 'NF == 3 && $3 !~ /^distag_/ { print $3 }')
  [ -z "$foreign" ] || { echo "libdistag.a defines: $foreign"; exit 1; }
  libs=$(PKG_CONFIG_PATH=$pc pkg-config --static --cflags --libs distag | sed 's/-ldistag /-l:libdistag.a /')
  # shellcheck disable=SC2086
  "$compiler" $flags "$consumer/main.c" -o "$work/by_pkg_config_static" $libs
  for program in "$work/by_pkg_config_static" "$work/cmake/consumer_static"; do
    "$program"
    ! readelf -d "$program" | grep -q 'libdistag\.so' || { echo "$program needs libdistag.so"; exit 1; }
  done
elif [ -z "$sanitizer" ]; then
  echo "libdistag.a is not installed"
  exit 1
fi
rm -rf "$work"
