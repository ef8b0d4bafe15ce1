#!/bin/sh
# A program that ends with calls open and everything unreleased leaves with 0, and says nothing. usage: leave.sh FOLDER
set -eu
for run in 1 2 3 4 5 6 7 8 9 10; do
  printed=$(timeout 240 /usr/bin/luajit "$1/leave.lua" 2>&1) || { echo "run $run left with $?: $printed"; exit 1; }
  [ -z "$printed" ] || { echo "run $run: $printed"; exit 1; }
done
