#!/bin/sh
# The samples in Lua do what they say: digits learns, with two workers in C, as the program in C does; the service serves until
# it is asked to stop. usage: samples.sh SAMPLES DISTAG DIGITS_IN_C DIGITS.CSV
set -eu
samples=$1 distag=$2 digits=$3 data=$4 server=
work=$(mktemp -d)
trap '[ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true; rm -r "$work"' EXIT

# Writes the first lines of three processes to a file. A pipe to head would hide an end that failed.
train() {
  lines=$work/$1
  shift
  timeout 240 "$distag" run -n 3 -- "$@" >"$work/all"
  head -n 3 "$work/all" >"$lines"
}
train expected "$digits" "$data" 2
train mixed sh -c 'if [ "$RANK" = 0 ]; then exec /usr/bin/luajit "$0" "$2" 2; else exec "$1" "$2" 2; fi' \
  "$samples/digits.lua" "$digits" "$data"
grep -q 'held-out accuracy 0\.9' "$work/mixed"
diff "$work/expected" "$work/mixed"
train lua /usr/bin/luajit "$samples/digits.lua" "$data" 2
diff "$work/expected" "$work/lua"

mkdir "$work/group"
timeout 240 /usr/bin/luajit "$samples/service.lua" "file://$work/group" >"$work/served" &
server=$!
until grep -qs serves "$work/served"; do
  kill -0 "$server" # it has ended where this fails
  sleep 0.05
done
timeout 240 /usr/bin/luajit "$samples/service.lua" "file://$work/group" ask >"$work/asked"
wait "$server"
server=
printf 'mean 3\nstopping\n' | diff - "$work/asked"
printf 'service serves\nserved 2 calls\n' | diff - "$work/served"
