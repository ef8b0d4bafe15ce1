#!/bin/sh
# The sample of LOVE trains in frames. usage: run.sh REPOSITORY LIBRARY WORK_FOLDER      77: love is not installed
set -eu
command -v love >/dev/null || { echo "love is not installed: scripts/setup.sh bindings"; exit 77; }
repository=$1 build=$(dirname "$2") work=$3
rm -rf "$work"
mkdir -p "$work/game" "$work/restart" "$work/home"
cp "$repository/samples/hosts/love/conf.lua" "$work/game"
cp "$repository/samples/hosts/love/conf.lua" "$repository/tests/hosts/love/restart/main.lua" "$work/restart"
cp "$repository/samples/hosts/love/main.lua" "$work/game/game.lua"
cp "$repository/tests/hosts/love/main.lua" "$work/game"
cc -std=c11 -Wall -Wextra -Werror -I"$repository/include" "$repository/samples/hosts/learner.c" -L"$build" -ldistag \
  -o "$work/learner"
export LD_LIBRARY_PATH="$build" DISTAG_LIBRARY="$2" LUA_PATH="$repository/bindings/lua/?.lua;;" HOME="$work/home"
export XDG_DATA_HOME="$work/home" RESTARTS="$work/restarts"

# What the sample's run.sh looks for.
mkdir "$work/pkgconfig"
printf 'Name: distag\nDescription: of a build\nVersion: 0\nLibs: -L%s -ldistag\nCflags: -I%s/include\n' \
  "$build" "$repository" >"$work/pkgconfig/distag.pc"
export PKG_CONFIG_PATH="$work/pkgconfig" PATH="$build/tools:$PATH"

blocking=$(/usr/bin/python3 -c 'import json, sys
print(*(each["name"] for each in json.load(open(sys.argv[1]))["functions"] if each["blocks"]))' \
  "$repository/bindings/api.json")
/usr/bin/python3 -B "$repository/tests/hosts/love/check.py" "$repository/samples/hosts/love" "$build/tools/distag" \
  "$work/learner" "$work/game" "$work/restart" $blocking
rm -rf "$work"
