#!/bin/sh
# The cases, through the safe interface, touch no memory that is not theirs and lose none; each of them runs.
# usage: valgrind.sh CONFORMANCE REPOSITORY
set -eu
# valgrind knows no AVX-512, which OpenBLAS uses where there is some.
export OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1
# Without the cases that fork, or end with threads under way.
exec /usr/bin/python3 -B "$2/tests/bindings/check_conformance.py" "$2/bindings/conformance/cases.json" \
  --only "tensor: local: workers: values: backward: objects: report:" valgrind -q --error-exitcode=99 --leak-check=full \
  --show-leak-kinds=definite --errors-for-leak-kinds=definite --fair-sched=yes "$1" "$2"
