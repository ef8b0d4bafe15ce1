#!/bin/sh
# Builds everything and runs the whole suite through ctest.
# usage: tests/run.sh [--engine zmq|zmtp] [PRESET [CTEST ARGUMENTS...]]
# --engine: what carries tcp:// and ipc:// wherever a test does not choose; default: libzmq (zmq). Tests that ask less of
# libzmq are in tests/engines.txt.
# PRESET: dev (default: optimised, with asserts), release, asan or tsan, as in CMakePresets.json.
# A test that fails runs once more, alone (tests/verdict/suite.py). In dev each task of a loop that takes more than 5 ms
# is noted and told at the end.
set -eu

if [ "${1:-}" = --engine ]; then
  case ${2:-} in
    zmq | zmtp) export DISTAG_SOCKET_ENGINE="$2" ;;
    *) echo "usage: tests/run.sh [--engine zmq|zmtp] [PRESET [CTEST ARGUMENTS...]]" >&2 && exit 2 ;;
  esac
  shift 2
fi
cd "$(dirname "$0")/.."
preset=${1:-dev}
[ $# -eq 0 ] || shift

scripts/setup.sh tests
cmake --preset "$preset"
cmake --build "build/$preset"
rm -f "build/$preset/long_tasks.txt"
verdict=0
/usr/bin/python3 -B tests/verdict/suite.py "build/$preset" -j "$(nproc)" "$@" || verdict=$?
/usr/bin/python3 -B tests/long_tasks/report.py "build/$preset/long_tasks.txt"
exit $verdict
