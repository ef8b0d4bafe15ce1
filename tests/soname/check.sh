#!/bin/sh
# The soname of the built library ends in DISTAG_ABI_MAJOR, and follows the header when that says 1.
# usage: check.sh CMAKE GENERATOR SOURCE_DIR LIBRARY WORK_FOLDER C_COMPILER
set -eu
cmake=$1 generator=$2 source=$3 library=$4 work=$5 compiler=$6

soname() { readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\].*/\1/p'; }
expect() { [ "$(soname "$1")" = "$2" ] || { echo "$1: soname $(soname "$1"), not $2"; exit 1; }; }

major=$(sed -n 's/^#define DISTAG_ABI_MAJOR \([0-9]*\).*/\1/p' "$source/include/distag.h")
expect "$library" "libdistag.so.$major"

rm -rf "$work"
mkdir -p "$work"
for other in 1 27; do
  sed "s/^#define DISTAG_ABI_MAJOR [0-9]*/#define DISTAG_ABI_MAJOR $other/" "$source/include/distag.h" >"$work/distag.h"
  "$cmake" -G "$generator" -S "$source/tests/soname/project" -B "$work/build" -DDISTAG_SOURCE_DIR="$source" \
    -DHEADER="$work/distag.h" -DCMAKE_C_COMPILER="$compiler" >"$work/configure.log"
  "$cmake" --build "$work/build" >"$work/build.log"
  expect "$work/build/libdistag.so" "libdistag.so.$other"
done
rm -rf "$work"
