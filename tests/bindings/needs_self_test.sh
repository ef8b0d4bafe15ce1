#!/bin/sh
# needs.sh runs a command, or fails for want of its tools. usage: needs_self_test.sh
set -eu
needs=$(dirname "$0")/needs.sh
is() { # STATUS SAID COMMAND...
  status=$1 said=$2 found=0
  shift 2
  text=$("$@") || found=$?
  [ "$found $text" = "$status $said" ] || { echo "$*: $found $text"; exit 1; }
}
is 0 'a  b' sh "$needs" sh cat -- printf '%s\n' 'a  b'
is 3 '' sh "$needs" /bin/sh -- sh -c 'exit 3'
is 1 'missing: /none/go no-such-tool; scripts/setup.sh bindings installs the tools' \
  sh "$needs" /none/go sh no-such-tool -- echo runs
is 0 runs sh "$needs" sh -- echo runs
