#!/bin/sh
# Starts the game and its learner, until Ctrl-C. It needs cc, love, distag with its headers, and distag's module for Lua.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
trap 'exit 130' INT TERM
cc ../learner.c $(pkg-config --cflags --libs distag) -o "$work/learner"
distag run -n 2 --restart 5 -- sh -c 'if [ "$RANK" = 0 ]; then exec love .; else exec "$0"; fi' "$work/learner"
