#!/bin/sh
# What takes too long for each run of the suite: the soak, and the cases many times beside a load.
# usage: long.sh REPOSITORY PROGRAMS [ROUNDS]
set -eu
repository=$1 programs=$2 rounds=${3:-50}
sh "$repository/tests/bindings/soak.sh" csharp "$programs" 100000 10000
timeout 3000 sh -c 'while :; do :; done' & busy=$!
timeout 3000 sh -c 'while :; do :; done' & busier=$!
trap 'kill $busy $busier' EXIT
for round in $(seq "$rounds"); do
  said=$(/usr/bin/mono --debug "$programs/conformance.exe" "$repository" 2>&1) || { echo "in round $round: $said"; exit 1; }
done
/usr/bin/mono --debug "$programs/unit.exe"
