#!/bin/sh
# The header compiles without a warning by gcc and clang, as C++17 and C++20, with exceptions and without; the program
# without exceptions runs; the form that throws does not compile then; no symbol keeps a library of the user mapped.
# usage: compile.sh REPOSITORY LIBRARY WORK_FOLDER
set -eu
repository=$1 library=$2 work=$3
tests=$repository/tests/bindings/cpp
flags="-Wall -Wextra -Wconversion -Wshadow -Werror -I$repository/include -I$repository/bindings/cpp"
folder=$(dirname "$library")
mkdir -p "$work"
fail() { echo "$*"; exit 1; }

clang=$(command -v clang++-14 || command -v clang++) || fail "clang is missing: scripts/setup.sh tests"
for compiler in g++ "$clang"; do
  for standard in 17 20; do
    # shellcheck disable=SC2086
    "$compiler" -std=c++$standard $flags -fsyntax-only "$tests/use_everything.cpp" || fail "$compiler, C++$standard"
    # shellcheck disable=SC2086
    "$compiler" -std=c++$standard $flags -fno-exceptions -fno-rtti "$tests/use_without_exceptions.cpp" \
      -o "$work/program" -L"$folder" -ldistag -Wl,-rpath,"$folder" || fail "$compiler, C++$standard, no exceptions"
    "$work/program" || fail "$compiler, C++$standard: the program failed"
  done
  echo '#include <distag.hpp>
int main() { distag::zeros({2}); }' >"$work/throws.cpp"
  # shellcheck disable=SC2086
  if "$compiler" -std=c++17 $flags -fno-exceptions -c "$work/throws.cpp" -o "$work/throws.o" 2>"$work/throws.log"; then
    fail "$compiler: without exceptions a function that throws compiles"
  fi
  grep -q 'needs a distag::status' "$work/throws.log" || fail "$compiler: does not say what is wrong"
done

# shellcheck disable=SC2086
g++ -std=c++17 $flags -shared -fPIC "$tests/use_everything.cpp" -o "$work/plugin.so" -L"$folder" -ldistag
unique=$(nm -D -C "$work/plugin.so" | grep ' u .*distag' || true)
[ -z "$unique" ] || fail "unique symbols, which keep a library mapped: $unique"
