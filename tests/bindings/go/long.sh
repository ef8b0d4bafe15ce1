#!/bin/sh
# What takes too long for each run of the suite: the cases many times beside a load, the race detector, checks of pointers, a
# collector that never rests. usage: long.sh REPOSITORY WORK_FOLDER [ROUNDS]
set -eu
repository=$1 work=$2 rounds=${3:-50}
mkdir -p "$work"
cd "$repository/tests/bindings/go"

build() { # NAME FLAGS...
  name=$1
  shift
  /usr/bin/go build "$@" -o "$work/$name-conformance" ./conformance
  /usr/bin/go test -c -vet=off "$@" -o "$work/$name-unit" ./unit
}

cases() { # NAME: says nothing but what is not ok
  "$work/$1-conformance" "$repository" >"$work/out" 2>&1 || { cat "$work/out"; return 1; }
}

build plain
build race -race
build pointers -gcflags=all=-d=checkptr
for name in race pointers; do
  echo "$name"
  cases $name
  "$work/$name-unit" -test.short
done
echo "cgocheck=2 and GOGC=1"
export GODEBUG=cgocheck=2 GOGC=1
cases plain
"$work/plain-unit" -test.short
unset GODEBUG GOGC

echo "a thousand rounds of calls to the own worker under the host's executor"
"$work/plain-unit" -test.run TestHostCodeCallsItsOwnWorker -test.count=50

echo "$rounds times beside two busy cores"
timeout 3000 sh -c 'while :; do :; done' & busy=$!
timeout 3000 sh -c 'while :; do :; done' & busier=$!
trap 'kill $busy $busier' EXIT
for round in $(seq "$rounds"); do
  cases plain || { echo "in round $round"; exit 1; }
done
"$work/plain-unit"
