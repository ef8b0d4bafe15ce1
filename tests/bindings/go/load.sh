#!/bin/sh
# With the tag distag_load a program links no libdistag: all cases run over the one that is found at run time, and one that
# does not fit is refused. usage: load.sh REPOSITORY LIBRARY WORK_FOLDER
set -eu
repository=$1 library=$2 work=$3
export PKG_CONFIG=/bin/false CGO_CFLAGS="-O2 -g -Wall -Wextra -Wno-unused-parameter -I$repository/include"
mkdir -p "$work"
cd "$repository/tests/bindings/go"
/usr/bin/go vet -tags distag_load ./loaded
/usr/bin/go build -tags distag_load -o "$work" ./conformance ./loaded
for program in conformance loaded; do
  if readelf -d "$work/$program" | grep NEEDED | grep distag; then echo "$program links the library"; exit 1; fi
done
DISTAG_LIBRARY=$library /usr/bin/python3 -B ../check_conformance.py "$repository/bindings/conformance/cases.json" \
  "$work/conformance" "$repository" >"$work/cases" || { cat "$work/cases"; exit 1; }
tail -n 1 "$work/cases"

# What functions of C are given to destroy.
cc -std=gnu11 -Wall -Wextra -Werror -DDISTAG_GO_LOAD "-I$repository/include" "-I$repository/bindings/go" destroyed.c \
  "$repository/bindings/go/loaded.c" "$repository/bindings/go/loader.c" -ldl -pthread -o "$work/destroyed"
DISTAG_LIBRARY=libm.so.6 "$work/destroyed"
sh ../refused_libraries.sh "$work" "$work/loaded"
