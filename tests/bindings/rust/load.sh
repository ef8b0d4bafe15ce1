#!/bin/sh
# With the feature `load` a program links no libdistag: all cases run over the table of one that is found at run time, and
# one that does not fit is refused. usage: load.sh REPOSITORY LIBRARY WORK_FOLDER OP_CALLS
set -eu
repository=$1 library=$2 work=$3
unset DISTAG_LIB_DIR LD_LIBRARY_PATH
export DISTAG_OP_CALLS="$4" CARGO_TARGET_DIR="$work/target" PKG_CONFIG=/bin/false
mkdir -p "$work"
cd "$repository/tests/bindings/rust"
/usr/bin/cargo build --offline --quiet --features load --bin conformance --bin loaded
programs=$work/target/debug
for program in conformance loaded; do
  if readelf -d "$programs/$program" | grep NEEDED | grep distag; then echo "$program links the library"; exit 1; fi
done
DISTAG_LIBRARY=$library /usr/bin/python3 -B ../check_conformance.py "$repository/bindings/conformance/cases.json" \
  "$programs/conformance" "$repository" >"$work/cases" || { cat "$work/cases"; exit 1; }
tail -n 1 "$work/cases"
sh ../refused_libraries.sh "$work" "$programs/loaded"
