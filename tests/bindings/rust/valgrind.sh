#!/bin/sh
# The cases, through the safe interface, touch no memory that is not theirs and lose none.
# usage: valgrind.sh CONFORMANCE REPOSITORY
set -eu
# valgrind knows no AVX-512, which OpenBLAS uses where there is some.
export OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1
# Without the cases that fork, or end with threads under way.
exec valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
  --fair-sched=yes "$1" "$2" tensor: local: workers: values: backward: objects: report:
