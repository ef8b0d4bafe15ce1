#!/bin/sh
# Builds the fuzz targets with libFuzzer and lets each one search for that long, one after the other, on one core; tells
# the executions, the coverage and the crashes of each. usage: tests/fuzz/soak.sh MINUTES [TARGET...]
# Inputs that reach new code stay in build/fuzz/corpus, those that crash in build/fuzz/crashes: such a one goes to
# tests/fuzz/corpus with the repair. Exit code 1 if a target crashed.
set -eu

cd "$(dirname "$0")/../.."
minutes=${1:?usage: tests/fuzz/soak.sh MINUTES [TARGET...]}
shift
seconds=$(awk "BEGIN { print int($minutes * 60) }")
[ $# -gt 0 ] || set -- $(cd tests/fuzz && ls ./*_fuzz.cpp | sed 's|^\./||; s|\.cpp$||')

nice -n 10 cmake --preset fuzz > /dev/null
nice -n 10 cmake --build build/fuzz --target "$@"
crashes=build/fuzz/crashes
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 1' INT TERM
failures=0
for target; do
  found=build/fuzz/corpus/$target
  mkdir -p "$found" "$crashes"
  ended=well
  OPENBLAS_NUM_THREADS=1 nice -n 10 "build/fuzz/tests/$target" -max_total_time="$seconds" -timeout=20 \
    -print_final_stats=1 -artifact_prefix="$crashes/$target-" "$found" "tests/fuzz/corpus/$target" > "$log" 2>&1 ||
    ended=badly
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "$target: ${executions:-0} executions, $(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1), ended $ended"
  if [ "$ended" = badly ]; then
    failures=$((failures + 1))
    grep -m 3 -E '^SUMMARY|runtime error|Test unit written' "$log" || tail -n 5 "$log"
  fi
done
echo "end: $# targets of $minutes minutes, $failures ended badly"
[ "$failures" -eq 0 ]
