#!/bin/sh
# Starts the game and its learner, until Ctrl-C. It needs cc, godot3-server and distag with its headers.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
trap 'exit 130' INT TERM
cc ../learner.c $(pkg-config --cflags --libs distag) -o "$work/learner"
cp game.gd game.tscn learning.gdnlib project.godot "$work"
cc -shared -fPIC -fvisibility=hidden learning.c $(pkg-config --cflags --libs distag) -o "$work/liblearning.so"
distag run -n 2 --restart 5 -- sh -c \
  'if [ "$RANK" = 0 ]; then exec godot3-server --path "$0"; else exec "$0/learner"; fi' "$work"
