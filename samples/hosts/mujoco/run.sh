#!/bin/sh
# Starts the robot and its learner, until Ctrl-C. It needs cc, MuJoCo and distag, both with their headers.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
trap 'exit 130' INT TERM
cc ../learner.c $(pkg-config --cflags --libs distag) -o "$work/learner"
cc main.c $(pkg-config --cflags --libs distag) -lmujoco -lm -o "$work/robot"
distag run -n 2 --restart 5 -- sh -c 'if [ "$RANK" = 0 ]; then exec "$0" "$1"; else exec "$2"; fi' \
  "$work/robot" cart_and_pole.xml "$work/learner"
