#!/bin/sh
# Installs what distag is built from, by apt. usage: scripts/setup.sh [samples|tests|bindings|ci|site|package]
# samples: to build the library; bindings: and to try the bindings of other languages; tests (default): and the whole
# suite; ci: and what .ci/run checks with; site: and the browser that tests/site/run.sh opens the site with.
# package: what builds and tries the packages, alone.
# As root or with sudo. Where there is no apt it names what is missing and fails.
set -eu

what=${1:-tests}
packages="gcc g++ cmake ninja-build pkg-config libzmq3-dev libsodium-dev libflatbuffers-dev flatbuffers-compiler
  libxtensor-dev libxsimd-dev libopenblas-dev libisal-dev libfmt-dev nlohmann-json3-dev libcurl4-openssl-dev libpmix-dev"
bindings="python3 python3-numpy python3-pip python3-venv mypy clang libeigen3-dev libclass-loader-dev
  libignition-plugin-dev rustc cargo rustfmt rust-clippy bindgen golang-go
  luajit lua-check love godot3-server libmujoco-dev mono-mcs mono-runtime valgrind libnodeletlib-dev
  libnodeletlib-tools pluginlib-dev libroscpp-dev libstd-msgs-dev python3-rosmaster"
suite="$bindings ccache libgtest-dev librapidcheck-dev libbenchmark-dev abigail-tools mandoc doxygen iproute2
  nftables python3-zmq python3-flatbuffers"
packaging="autopkgtest blhc build-essential debhelper diffoscope-minimal git iproute2 lintian mmdebstrap"
case $what in
  samples) ;;
  bindings) packages="$packages $bindings" ;;
  tests) packages="$packages $suite" ;;
  ci) packages="$packages $suite clang-14 libclang-rt-14-dev clang-format-14 etcd-server openssl
    openmpi-bin" ;;
  site) packages="$packages python3 mandoc doxygen chromium chromium-driver python3-selenium" ;;
  package) packages="$packaging" ;;
  *) echo "scripts/setup.sh: \"$what\" is not known: use samples, bindings, tests, ci, site or package" >&2; exit 2 ;;
esac

# Elsewhere than on Debian and its kin we cannot install, but can say what to install.
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-query >/dev/null 2>&1; then
  missing=""
  commands="gcc g++ cmake ninja pkg-config flatc"
  modules="libzmq libsodium libisal openblas fmt xtensor"
  modules="$modules pmix"
  headers="flatbuffers/flatbuffers.h xsimd/xsimd.hpp nlohmann/json.hpp curl/curl.h"
  if [ "$what" = package ]; then
    commands="autopkgtest blhc diffoscope dpkg-buildpackage lintian mmdebstrap" modules="" headers=""
  elif [ "$what" != samples ]; then
    commands="$commands python3 mypy clang"
    modules="$modules eigen3 ignition-plugin1"
    headers="$headers class_loader/class_loader/class_loader.hpp mujoco/mujoco.h nodelet/nodelet.h"
  fi
  if [ "$what" = tests ] || [ "$what" = ci ]; then
    headers="$headers gtest/gtest.h rapidcheck.h benchmark/benchmark.h"
    commands="$commands abidw abidiff mandoc doxygen valgrind ip"
  fi
  [ "$what" != site ] || commands="$commands chromium chromedriver"
  [ "$what" != ci ] || commands="$commands clang++-14 clang-format-14 etcd openssl"
  for command in $commands; do
    command -v "$command" >/dev/null 2>&1 || missing="$missing $command"
  done
  for module in $modules; do
    pkg-config --exists "$module" 2>/dev/null || missing="$missing $module.pc"
  done
  for header in $headers; do
    echo "#include <$header>" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1 || missing="$missing <$header>"
  done
  [ -n "$missing" ] || exit 0
  echo "scripts/setup.sh: this system has no apt. Missing:$missing" >&2
  echo "Install them with your package manager; on Debian 12 their packages are:" $packages >&2
  exit 1
fi

missing=""
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "scripts/setup.sh: neither root nor sudo. Run as root: apt-get install$missing" >&2
    exit 1
  fi
  as_root=sudo
fi
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
