# What .ci/run and scripts/check_full.sh share: steps with their verdicts, and the summary. Sourced by bash at the root of
# the checkout. What each step printed is in $logs/<step>.log.
: "${logs:=build/ci}"
rm -rf "$logs" # what an earlier run left is no verdict of this one
mkdir -p "$logs"
summary=()
failures=0

step() { # NAME COMMAND...
  local name=$1 start=$SECONDS verdict=passed
  shift
  echo "==> $name"
  "$@" 2>&1 | tee "$logs/$name.log"
  if [ "${PIPESTATUS[0]}" -ne 0 ]; then
    verdict=FAILED
    failures=$((failures + 1))
  fi
  summary+=("$(printf '%-28s %-7s %4d s' "$name" "$verdict" $((SECONDS - start)))")
}

# A line a step; of suites their verdicts, figures and what flaky tests printed. Fails if a step did, or if all suites
# together had more than three flaky tests.
print_summary() {
  local log file flaky
  echo
  echo "==> summary"
  printf '%s\n' "${summary[@]}"
  for log in "$logs"/*.log; do
    grep -q '^verdict: ' "$log" || continue
    echo "$(basename "$log" .log):"
    grep -E '^(verdict|figure|long task|tasks of loops|Total Test time)' "$log" | sed 's/^/  /'
    for file in $(sed -n 's/^verdict: flaky: [^ ]* ([^)]*): //p' "$log"); do
      echo "  the end of $file:"
      tail -n 40 "$file" | sed 's/^/    /'
    done
  done
  flaky=$(cat "$logs"/*.log | grep -c '^verdict: flaky: ')
  if [ "$flaky" -gt 3 ]; then
    echo "$flaky flaky tests: three are the most of all suites"
    failures=$((failures + 1))
  fi
  [ "$failures" -eq 0 ] && echo "all steps passed" || echo "$failures step(s) failed"
  [ "$failures" -eq 0 ]
}

# A suite of a build folder, as tests/run.sh runs it. usage: run_suite BUILD [CTEST ARGUMENTS...]
run_suite() {
  local build=$1
  shift
  /usr/bin/python3 -B tests/verdict/suite.py "$build" -j "$(nproc)" "$@"
}
