#!/bin/sh
# Runs a command whose tools are installed; without one of them it fails, and says so in one line.
# usage: needs.sh TOOLS... -- COMMAND...
set -eu
missing=
while [ "$1" != -- ]; do
  command -v "$1" >/dev/null || missing="$missing $1"
  shift
done
shift
[ -n "$missing" ] || exec "$@"
echo "missing:$missing; scripts/setup.sh bindings installs the tools"
exit 1
