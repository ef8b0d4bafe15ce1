#!/bin/sh
# Runs the whole matrix of faults with the dev build and writes its summary, tests/faults/matrix.txt; 20 minutes on two
# cores.
# usage: tests/faults/run.sh [--full]   --full: each fault at each step over each transport, about 8,000 cells
set -eu

cd "$(dirname "$0")/../.."
cmake --preset dev >/dev/null
cmake --build build/dev --target faults_participant
program=build/dev/tests/faults/faults_participant
if [ "${1:-}" = --full ]; then
  exec /usr/bin/python3 -B tests/faults/matrix.py "$program" --full
fi
exec /usr/bin/python3 -B tests/faults/matrix.py "$program" --write tests/faults/matrix.txt
