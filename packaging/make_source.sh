#!/bin/sh
# Makes the source package of what is committed. usage: packaging/make_source.sh FOLDER [COMMIT]
# FOLDER gets distag_X.Y.Z.orig.tar.gz, the files of debian/ and the .dsc; and the unpacked sources, distag-X.Y.Z.
# COMMIT: another version than HEAD, packaged with this debian/ as far as that version has what it names.
set -eu

folder=$(realpath "$1")
cd "$(dirname "$0")/.."
commit=${2:-HEAD}

version=$(git show "$commit:CMakeLists.txt" | sed -n 's/^project(distag VERSION \([0-9.]*\).*/\1/p')
sources=$folder/distag-$version
git archive --prefix="distag-$version/" "$commit" -- . ':!debian' | gzip -n >"$folder/distag_$version.orig.tar.gz"
tar -x -z -C "$folder" -f "$folder/distag_$version.orig.tar.gz"
git archive HEAD debian | tar -x -C "$sources"

# An earlier version lacks these: packages without a build of theirs, files, and the nodes of the symbols.
if [ "$commit" != HEAD ]; then
  sed -i "1s/([0-9.]*-/($version-/" "$sources/debian/changelog"
  rm "$sources/debian/libdistag0.symbols"
  awk 'BEGIN { RS = ""; ORS = "\n\n" } NR == 1 || /^Package: libdistag/' "$sources/debian/control" >"$folder/control"
  mv "$folder/control" "$sources/debian/control"
  sed -i '/libdistag.a$/d; /share\/distag/d' "$sources/debian/libdistag-dev.install"
  sed -i 's/ distag_static distag_command man / /' "$sources/debian/rules"
fi
(cd "$folder" && dpkg-source --build "distag-$version")
