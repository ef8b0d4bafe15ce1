#!/bin/sh
# Builds everything and runs the whole suite through ctest. usage: tests/run.sh [PRESET [CTEST ARGUMENTS...]]
# PRESET: dev (default: optimised, with asserts), release, asan or tsan, as in CMakePresets.json.
# In dev each task of a loop that takes more than 5 ms is noted, and one that does so again and again fails the run.
set -eu

cd "$(dirname "$0")/.."
preset=${1:-dev}
[ $# -eq 0 ] || shift

scripts/setup.sh tests
cmake --preset "$preset"
cmake --build "build/$preset"
rm -f "build/$preset/long_tasks.txt"
ctest --test-dir "build/$preset" --output-on-failure -j "$(nproc)" "$@" || exit
exec /usr/bin/python3 -B tests/long_tasks/judge.py "build/$preset/long_tasks.txt" \
  ctest --test-dir "build/$preset"
