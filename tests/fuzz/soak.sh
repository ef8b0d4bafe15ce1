#!/bin/bash
# Builds the fuzz targets with libFuzzer and lets each one search for that long, as many at a time as there are cores;
# tells the executions, the coverage and the crashes of each. usage: tests/fuzz/soak.sh HOURS [TARGET...]
# HOURS may be a fraction: 0.167 are ten minutes. Inputs that reach new code stay in build/fuzz/corpus, those that crash
# in build/fuzz/crashes: such a one goes to tests/fuzz/corpus with the repair. Exit code 1 if a target crashed.
# With DISTAG_FUZZ_SEED in the environment a search goes the same way each time, as far as its threads do.
set -eu

cd "$(dirname "$0")/../.."
hours=${1:?usage: tests/fuzz/soak.sh HOURS [TARGET...]}
shift
seconds=$(awk -v hours="$hours" 'BEGIN { print int(hours * 3600 + 0.5) }')
[ "$seconds" -gt 0 ] || { echo "\"$hours\" is no number of hours above 0" >&2; exit 2; } # libFuzzer would never end
[ $# -gt 0 ] || set -- $(cd tests/fuzz && ls ./*_fuzz.cpp | sed 's|^\./||; s|\.cpp$||')

search() { # TARGET
  local target=$1 found=build/fuzz/corpus/$1 log=build/fuzz/logs/$1.log crashes verdict=0
  shift
  mkdir -p "$found"
  # What is validated is never freed: a process of its own from time to time.
  [ "$target" != capi_handles_fuzz ] || set -- -fork=1
  [ -z "${DISTAG_FUZZ_SEED:-}" ] || set -- "$@" "-seed=$DISTAG_FUZZ_SEED"
  OPENBLAS_NUM_THREADS=1 nice -n 10 "build/fuzz/tests/$target" "$@" -max_total_time="$seconds" -timeout=20 -entropic=0 \
    -artifact_prefix="build/fuzz/crashes/$target-" "$found" "tests/fuzz/corpus/$target" > "$log" 2>&1 || verdict=1
  crashes=$(grep -c 'Test unit written' "$log" || true)
  echo "$target: $(grep -o '^#[0-9][0-9]*' "$log" | tail -n 1 | tr -d '#') executions," \
    "$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1), $crashes crashes"
  [ "$verdict" -eq 0 ] || grep -m 3 -E '^SUMMARY|runtime error|Test unit written' "$log" || tail -n 5 "$log"
  return "$verdict"
}
export seconds
export -f search

nice -n 10 cmake --preset fuzz > /dev/null
nice -n 10 cmake --build build/fuzz --target "$@"
mkdir -p build/fuzz/crashes build/fuzz/logs
verdict=0
printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -n 1 bash -c 'search "$1"' search || verdict=1
[ "$verdict" -eq 0 ] && ended=well || ended=badly
echo "end: $# targets of $seconds seconds each, ended $ended"
exit "$verdict"
