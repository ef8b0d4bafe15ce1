#!/usr/bin/env bash
# Prints all benchmark rows in one table: distag, what it is held against, the peer where it is installed
# (Debian: python3-torch), and the ratios of five rounds. Uses one thread for each process.
#   tests/bench/run.sh [--rounds N] [ROW ...]
#   tests/bench/run.sh engines [--rounds N] [--before PROGRAM] [ROW ...]   rows of sockets, by libzmq and by zmtp
#   tests/bench/run.sh ops [--rounds N] [--before PROGRAM] [NAME ...]   each op alone, at three sizes
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
build=${DISTAG_BUILD_DIR:-$top/build/release}
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
if [ ! -d "$build" ]; then cmake -S "$top" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null; fi
cmake --build "$build" --target distag_bench >/dev/null
program=$(find "$build" -name distag_bench -type f -perm -u+x | head -n 1)
table=table.py
case ${1:-} in
  ops) shift && table=ops_table.py ;;
  engines) shift && table=engines.py ;;
esac
exec /usr/bin/env python3 "$top/tests/bench/$table" "$program" "$@"
