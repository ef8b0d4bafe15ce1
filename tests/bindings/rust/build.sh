#!/bin/sh
# Builds the programs of the tests. usage: build.sh REPOSITORY OP_CALLS
set -eu
/usr/bin/python3 -B "$1/tests/bindings/rust/op_calls.py" "$1" "$2"
cd "$1/tests/bindings/rust"
DISTAG_OP_CALLS=$2 /usr/bin/cargo build --offline --quiet --bins
cd "$1/bindings/rust"
/usr/bin/cargo build --offline --quiet --examples
