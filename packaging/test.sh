#!/bin/bash
# Builds the packages in a bare Debian 12, and uses and upgrades them in a second one. As root; scripts/setup.sh package
# installs what it needs. Takes half an hour or more on 2 cores, nearly all of it for three builds; leaves nothing behind.
# usage: packaging/test.sh [FOLDER]      FOLDER gets the packages
#   prepare   the builder: source packages of this commit and of the last release, and what they are built with
#   build     the packages, with their tests, without a network
#   last      those of the last release, with this debian/
#   lint      lintian has no error and no warning, blhc nothing to say
#   again     built in another folder, locale, time zone, umask and year they are the same, byte for byte
#   train     in a bare Debian, the packages are installed, and digits are learned over three processes
#   purge     leaves no file
#   use       debian/tests, run by autopkgtest
#   upgrade   a program built against the last release's packages keeps running, and runs again
set -eu

[ $# -eq 0 ] || mkdir -p "$1"
folder=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."
. scripts/chroot.sh
last_release=02df363 last_version=0.2.0 # as RELEASING.md says
version=$(sed -n 's/^project(distag VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)

[ "$(id -u)" = 0 ] || { echo "packaging/test.sh: run it as root: it makes chroots" >&2; exit 1; }
for tool in mmdebstrap git lintian blhc diffoscope autopkgtest dpkg-source ip; do
  command -v $tool >/dev/null || { echo "packaging/test.sh: $tool is missing: scripts/setup.sh package" >&2; exit 1; }
done
git cat-file -e $last_release || { echo "packaging/test.sh: $last_release is missing: git fetch --unshallow" >&2; exit 1; }

work=$(mktemp -d)
builder=$work/builder user=$work/user job=
export TMPDIR=$work
leave() {
  if [ -n "$job" ]; then
    kill -- "-$job" 2>/dev/null || true
    wait "$job" 2>/dev/null || true
  fi
  remove_chroot "$builder"
  remove_chroot "$user"
  rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 1' HUP INT TERM

# Each step is a job of its own, which a signal ends at once, with all that it has started.
set -m
summary=()
step() {
  local begin=$SECONDS
  echo "==> $1"
  "$1" &
  job=$!
  wait "$job"
  job=
  summary+=("$(printf '%-8s %4d s' "$1" $((SECONDS - begin)))")
}

# Runs a command in the builder, where there is no network but the loopback.
offline() {
  unshare --net bash -ec 'ip link set lo up; . scripts/chroot.sh; in_chroot "$1" "$2"' offline "$builder" "$1"
}

packages() { # FOLDER: what users install
  find "$1" -name '*.deb' ! -name '*-dbgsym_*' | sort
}

prepare() {
  make_chroot "$builder" --include=build-essential,faketime,libfile-fcntllock-perl,locales
  mkdir "$builder/first" "$builder/second" "$builder/last"
  packaging/make_source.sh "$builder/first"
  packaging/make_source.sh "$builder/last" $last_release
  in_chroot "$builder" "localedef -i et_EE -f UTF-8 et_EE.UTF-8
    apt-get -q update; apt-get -q -y --no-install-recommends build-dep /first/*.dsc" >"$work/prepare.log" ||
    { tail -n 40 "$work/prepare.log"; return 1; }
}

build() {
  offline "cd /first/distag-*/; dpkg-buildpackage -us -uc" >"$work/build.log" 2>&1 || { tail -n 80 "$work/build.log"; return 1; }
  grep -E 'tests passed|Total Test time' "$work/build.log"
  dpkg-deb -f "$builder"/first/libdistag0_*.deb Depends | grep -q libzmq5 ||
    { echo "libdistag0 needs no libzmq5"; return 1; }
  packages "$builder/first" | xargs ls -sh
  [ -z "$folder" ] || packages "$builder/first" | xargs cp -t "$folder"
}

# Its tests are those of its time.
last() {
  offline "cd /last/distag-*/; DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage -us -uc -B" >"$work/last.log" 2>&1 ||
    { tail -n 80 "$work/last.log"; return 1; }
}

lint() {
  lintian --fail-on error,warning --pedantic -I -E --show-overrides "$builder"/first/*.changes
  blhc "$work/build.log"
}

again() {
  offline "umask 027; cp -r /first/distag-*/ /second/elsewhere; cd /second/elsewhere; debian/rules clean
    export DEB_BUILD_OPTIONS=nocheck LC_ALL=et_EE.UTF-8 TZ=XYZ-14
    faketime -f +400d dpkg-buildpackage -us -uc -b" >"$work/again.log" 2>&1 || { tail -n 80 "$work/again.log"; return 1; }
  local package count=0
  for package in "$builder"/first/*.deb; do
    diffoscope "$package" "$builder/second/$(basename "$package")"
    cmp "$package" "$builder/second/$(basename "$package")"
    count=$((count + 1))
  done
  echo "$count packages built twice: 0 bytes differ"
}

train() {
  local begin=$SECONDS
  make_chroot "$user"
  mkdir "$user/packages" "$user/last"
  cp packaging/upgrade/steps.c "$user/last"
  packages "$builder/first" | xargs cp -t "$user/packages"
  packages "$builder/last" | xargs cp -t "$user/last"
  files >"$work/files.before"
  in_chroot "$user" "apt-get -q update; apt-get -q -y --no-install-recommends install /packages/*.deb" >"$work/install.log"
  in_chroot "$user" "OPENBLAS_NUM_THREADS=1 python3 -m distag.samples.digits" | tail -n 2
  in_chroot "$user" "readlink -f /usr/lib/*/libopenblas.so.0" # the BLAS that an installation takes
  echo "from nothing to a trained classifier: $((SECONDS - begin)) s"
}

# All files, but for those that apt and dpkg write for themselves, and the cache of the linker.
files() {
  (cd "$user" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./tmp -o -path ./packages -o -path ./last -o \
    -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log \) -prune -o -print | sort)
}

purge() {
  local names
  names=$(packages "$user/packages" | xargs -I{} dpkg-deb -f {} Package)
  in_chroot "$user" "apt-get -q -y purge --autoremove $(echo $names)" >"$work/purge.log"
  files >"$work/files.after"
  diff "$work/files.before" "$work/files.after"
}

use() {
  mkdir -p "$user$TMPDIR" "$work/taken" # autopkgtest looks for the first on both sides, and removes what it is given
  packages "$builder/first" | xargs cp -t "$work/taken"
  autopkgtest --output-dir "$work/use" $(packages "$work/taken") "$builder"/first/*.dsc -- chroot "$user" \
    >"$work/use.log" 2>&1 || { cat "$work/use.log"; return 1; }
  cat "$work/use/summary"
}

# The program makes a step for each line it gets, and tells the version of its library.
upgrade() {
  local before after anew
  in_chroot "$user" "apt-get -q -y purge libdistag0
    apt-get -q -y --no-install-recommends install gcc libc6-dev pkg-config /last/*.deb
    cc /last/steps.c -o /last/steps \$(pkg-config --cflags --libs distag)" >"$work/last_install.log"
  coproc in_chroot "$user" /last/steps
  echo step >&"${COPROC[1]}"
  read -r before <&"${COPROC[0]}"
  in_chroot "$user" "apt-get -q -y --no-install-recommends install /packages/libdistag*.deb" >"$work/upgrade.log"
  echo step >&"${COPROC[1]}"
  read -r after <&"${COPROC[0]}"
  anew=$(in_chroot "$user" "echo step | /last/steps")
  printf '%s\n' "before: $before" "after: $after" "anew: $anew"
  [ "$before" = "$last_version: 2 4 6 OK" ] && [ "$after" = "$before" ] && [ "$anew" = "$version: 2 4 6 OK" ]
}

for name in prepare build last lint again train purge use upgrade; do step $name; done
printf '%s\n' "==> passed" "${summary[@]}"
