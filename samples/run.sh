#!/bin/sh
# Trains the digits model over worker processes on this machine. usage: samples/run.sh [ARGUMENTS OF 04_digits...]
# distag run starts the three processes, and tells each its rank and where they meet.
set -eu

cd "$(dirname "$0")/.."
scripts/setup.sh samples
cmake --preset samples
cmake --build build/samples --target 04_digits installables
# Three processes share this machine: one thread of BLAS each, unless the caller says otherwise.
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
exec build/samples/tools/distag run -n 3 build/samples/samples/04_digits samples/data/digits.csv "$@"
