#!/bin/sh
# The binding for Rust is as rustfmt, clippy and rustdoc want it. usage: lint.sh REPOSITORY
set -eu
for folder in "$1/bindings/rust" "$1/tests/bindings/rust"; do
  cd "$folder"
  [ -e Cargo.toml ] || continue
  /usr/bin/cargo fmt --all -- --check
  /usr/bin/cargo clippy --offline --quiet --workspace --all-targets -- -D warnings
done
cd "$1/bindings/rust"
/usr/bin/cargo clippy --offline --quiet --package distag --lib --features load -- -D warnings
/usr/bin/python3 -B "$1/tests/bindings/rust/examples.py" distag/src
/usr/bin/cargo doc --offline --quiet --no-deps
unsafe=$(grep -rlE '\bunsafe\b' distag/src --include=*.rs | grep -v '^distag/src/ffi/' | xargs -r grep -lE '^[^/]*\bunsafe (\{|fn|impl)' || true)
[ -z "$unsafe" ] || { echo "unsafe code outside of ffi: $unsafe" >&2; exit 1; }
lines=$(cat distag/src/*.rs distag/src/ffi/*.rs | wc -l)
generated=$(cat distag/src/ops.rs distag/src/enums.rs distag/src/getters.rs distag/src/ffi/functions.rs | wc -l)
hand=$(ls distag/src/*.rs distag/src/ffi/*.rs | grep -vE '/(ops|enums|getters|functions)\.rs$' | xargs cat |
  grep -cvE '^\s*(//.*)?$')
echo "$hand lines by hand (blank and comment lines not counted), $generated of $lines generated"
