#!/bin/sh
# A plugin of Gazebo's loader (libignition-plugin-dev). usage: run.sh REPOSITORY LIBRARY WORK_FOLDER
set -eu
repository=$1 library=$2 work=$3
here=$repository/tests/hosts/ignition_plugin
pkg-config --exists ignition-plugin1-loader 2>/dev/null || { echo "not run: libignition-plugin-dev is missing"; exit 77; }
flags="-std=c++17 -O1 -Wall -Wextra -Werror -I$repository/include -I$repository/bindings/cpp"
flags="$flags $(pkg-config --cflags ignition-plugin1-loader ignition-plugin1-register | sed 's/-I/-isystem /g')"
folder=$(dirname "$library")
mkdir -p "$work"

# Unique symbols would keep plugin and library mapped.
# shellcheck disable=SC2086
c++ $flags -fno-gnu-unique -shared -fPIC "$here/plugin.cpp" -o "$work/plugin.so" -L"$folder" -ldistag \
  -Wl,-rpath,"$folder" $(pkg-config --libs ignition-plugin1-register)
# shellcheck disable=SC2086
c++ $flags -fno-gnu-unique "$here/host.cpp" -o "$work/host" $(pkg-config --libs ignition-plugin1-loader)
"$work/host" "$work/plugin.so"
rm -rf "$work"
