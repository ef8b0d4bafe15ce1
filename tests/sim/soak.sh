#!/bin/sh
# Runs every seeded scenario of the simulator with fresh seeds until the time is up, on one core; tells how many seeds
# each has run, and of each failure the line that replays it. usage: tests/sim/soak.sh HOURS [FIRST_SEED]
# FIRST_SEED: the time of day in seconds unless given. Exit code 1 if a seed failed. SIM_TESTS: the program, that of
# the dev build unless given.
set -eu

cd "$(dirname "$0")/../.."
hours=${1:?usage: tests/sim/soak.sh HOURS [FIRST_SEED]}
first=${2:-$(date +%s)}
program=${SIM_TESTS:-build/dev/tests/sim_tests}
chunk=2000
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
trap 'exit 1' INT TERM
begin=$(date +%s)
end=$((begin + $(awk "BEGIN { print int($hours * 3600) }")))

# Those that ask for seeds say so by a line that begins with "seeds:".
scenarios=$("$program" --gtest_list_tests | awk '/^[^ ]/ { suite = $1 } /^  / { print suite $1 }')
seeded=
for scenario in $scenarios; do
  if DISTAG_SIM_FIRST=1 DISTAG_SIM_COUNT=0 "$program" --gtest_filter="$scenario" 2>/dev/null | grep -q '^seeds: '; then
    seeded="$seeded $scenario"
  fi
done
[ -n "$seeded" ] || { echo "no scenario of $program asks for seeds" >&2; exit 2; }

failures=0
rounds=0
while [ "$(date +%s)" -lt "$end" ]; do
  for scenario in $seeded; do
    [ "$(date +%s)" -lt "$end" ] || break 2
    if ! OPENBLAS_NUM_THREADS=1 DISTAG_SIM_FIRST=$first DISTAG_SIM_COUNT=$chunk nice -n 10 "$program" \
      --gtest_filter="$scenario" > "$output/log" 2>&1; then
      failures=$((failures + 1))
      echo "$scenario failed:"
      grep '^replay: ' "$output/log" || echo "crashed among the $chunk seeds from $first on"
      grep -m 3 -A 3 ': Failure' "$output/log" || true
    fi
  done
  rounds=$((rounds + 1))
  first=$((first + chunk))
  echo "$((rounds * chunk)) seeds of each of $(echo $seeded | wc -w) scenarios in $(($(date +%s) - begin)) s, $failures failed"
done
echo "end: $rounds whole rounds of $chunk seeds, $failures failed"
[ "$failures" -eq 0 ]
