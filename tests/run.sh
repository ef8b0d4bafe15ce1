#!/bin/sh
# Builds everything and runs the whole suite through ctest. usage: tests/run.sh [PRESET [CTEST ARGUMENTS...]]
# PRESET: dev (default: optimised, with asserts), release, asan or tsan, as in CMakePresets.json.
set -eu

cd "$(dirname "$0")/.."
preset=${1:-dev}
[ $# -eq 0 ] || shift

scripts/setup.sh tests
cmake --preset "$preset"
cmake --build "build/$preset"
exec ctest --test-dir "build/$preset" --output-on-failure -j "$(nproc)" "$@"
