#!/bin/sh
# Runs the programs in C under valgrind: wrong accesses, use of what was never written, and leaks fail.
# usage: tests/valgrind.sh [CTEST ARGUMENTS...]      default: -R '^capi_', without those below
set -eu

cd "$(dirname "$0")/.."
scripts/setup.sh tests
command -v valgrind >/dev/null || { echo "tests/valgrind.sh: valgrind is missing: apt-get install valgrind" >&2; exit 1; }
cmake --preset dev -DDISTAG_TEST_TIMEOUT=1800
trap 'cmake --preset dev -UDISTAG_TEST_TIMEOUT >/dev/null' EXIT
cmake --build build/dev
# Those measure memory, count allocations or limit descriptors, which valgrind has its own of, or fork; or end with
# threads that are parked for good, whose memory is no leak.
[ $# -gt 0 ] || set -- -R '^capi_' -E '^capi_(memory|(loop|payload|lane)_memory|lane_losses|descriptors|fork|thread_exits)$'
# valgrind knows no AVX-512, which OpenBLAS uses where there is some.
export OPENBLAS_CORETYPE=Haswell
ctest --test-dir build/dev --output-on-failure -j "$(nproc)" -T memcheck \
  --overwrite "MemoryCheckCommand=$(command -v valgrind)" \
  --overwrite "MemoryCheckCommandOptions=--error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite --fair-sched=yes -q" "$@"
