#!/bin/sh
# Builds the packages of what is committed, with their tests. usage: packaging/build.sh FOLDER      FOLDER gets them
# As root or with sudo, since it installs what they are built with.
set -eu

mkdir -p "$1"
folder=$(realpath "$1")
cd "$(dirname "$0")/.."

as_root=""
[ "$(id -u)" = 0 ] || as_root=sudo
$as_root apt-get -q update
$as_root apt-get -q -y --no-install-recommends build-dep .

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
packaging/make_source.sh "$work"
(cd "$work"/distag-*/ && dpkg-buildpackage --no-sign --build=binary)
find "$work" -name '*.deb' ! -name '*-dbgsym_*' -exec cp -t "$folder" {} +
