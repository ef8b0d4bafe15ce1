#!/bin/sh
# The samples in Lua do what they say: digits learns, with two workers in C, as the program in C does; the service serves until
# it is asked to stop. usage: samples.sh SAMPLES DISTAG DIGITS_IN_C DIGITS.CSV
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

timeout 240 "$2" run -n 3 -- "$3" "$4" 2 | head -n 3 >"$work/expected"
timeout 240 "$2" run -n 3 -- sh -c 'if [ "$RANK" = 0 ]; then exec /usr/bin/luajit "$0" "$2" 2; else exec "$1" "$2" 2; fi' \
  "$1/digits.lua" "$3" "$4" | head -n 3 >"$work/found"
grep -q 'held-out accuracy 0\.9' "$work/found"
diff "$work/expected" "$work/found"
timeout 240 "$2" run -n 3 -- /usr/bin/luajit "$1/digits.lua" "$4" 2 | head -n 3 | diff "$work/expected" -

mkdir "$work/group"
timeout 240 /usr/bin/luajit "$1/service.lua" "file://$work/group" >"$work/served" &
server=$!
until grep -q serves "$work/served"; do sleep 0.05; done
timeout 240 /usr/bin/luajit "$1/service.lua" "file://$work/group" ask >"$work/asked"
wait $server
printf 'mean 3\nstopping\n' | diff - "$work/asked"
printf 'service serves\nserved 2 calls\n' | diff - "$work/served"
