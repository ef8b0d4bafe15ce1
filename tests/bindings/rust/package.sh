#!/bin/sh
# What the packages of the crates hold is enough to build the README's example offline: debian/tests/rust, as it is run on
# an installed package. usage: package.sh REPOSITORY WORK_FOLDER
set -eu
rm -rf "$2"
mkdir -p "$2/work"
/usr/bin/python3 -B "$1/packaging/rust_registry.py" "$1" "$2/registry" distag-sys distag
cd "$1"
unset CARGO_TARGET_DIR
AUTOPKGTEST_TMP=$2/work REGISTRY=$2/registry sh debian/tests/rust
# A file that is not as it was packed is refused.
echo "// changed" >>"$2/registry/distag-0.3.0/src/lib.rs"
cd "$2/work"
rm -rf target
if /usr/bin/cargo build --offline --quiet 2>refused; then echo "a changed file was built"; exit 1; fi
grep -q "lib.rs. has changed" refused || { cat refused; exit 1; }
rm -rf "$2"
