#!/bin/sh
# Calls and steps whose tensors are never closed by hand leave memory, handles, threads and descriptors as they are after the
# first tenth. usage: soak.sh LANGUAGE PROGRAMS [CALLS [STEPS]]    (10^6 and 10^5)
set -eu
language=$1 programs=$2
shift 2
case $language in
  go) exec "$programs/soak" "$@" ;;
  csharp) exec /usr/bin/mono "$programs/soak.exe" "$@" ;;
  *) echo "soak.sh: \"$language\" has no program: use go or csharp" >&2; exit 2 ;;
esac
