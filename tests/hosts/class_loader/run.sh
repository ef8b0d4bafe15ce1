#!/bin/sh
# A plugin of class_loader (libclass-loader-dev). usage: run.sh REPOSITORY LIBRARY WORK_FOLDER
set -eu
repository=$1 library=$2 work=$3
here=$repository/tests/hosts/class_loader
[ -f /usr/include/class_loader/class_loader/class_loader.hpp ] || { echo "not run: libclass-loader-dev is missing"; exit 77; }
flags="-std=c++17 -O1 -Wall -Wextra -Werror -isystem /usr/include/class_loader -I$repository/include -I$repository/bindings/cpp"
flags="$flags $(for each in rcutils rcpputils ament_index_cpp; do echo "-isystem /usr/include/$each"; done)"
folder=$(dirname "$library")
mkdir -p "$work"

# The loader's own templates have unique symbols, which would keep plugin and library mapped.
# shellcheck disable=SC2086
c++ $flags -fno-gnu-unique -shared -fPIC "$here/plugin.cpp" -o "$work/plugin.so" -L"$folder" -ldistag \
  -Wl,-rpath,"$folder" -lclass_loader
# shellcheck disable=SC2086
c++ $flags -fno-gnu-unique "$here/host.cpp" -o "$work/host" -lclass_loader -lrcpputils -lconsole_bridge
"$work/host" "$work/plugin.so"
rm -rf "$work"
