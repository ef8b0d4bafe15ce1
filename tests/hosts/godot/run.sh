#!/bin/sh
# The sample of Godot trains in frames. usage: run.sh REPOSITORY LIBRARY WORK_FOLDER      77: Godot is not installed
set -eu
command -v godot3-server >/dev/null || { echo "godot3-server is not installed: scripts/setup.sh bindings"; exit 77; }
repository=$1 build=$(dirname "$2") work=$3
sample=$repository/samples/hosts/godot here=$repository/tests/hosts/godot
rm -rf "$work"
mkdir -p "$work/game" "$work/home" "$work/pkgconfig"
cp "$sample/game.gd" "$sample/game.tscn" "$sample/learning.gdnlib" "$sample/project.godot" "$work/game"
cp "$here"/*.gd "$here"/*.tscn "$here/measure.gdnlib" "$work/game"
flags="-std=c11 -Wall -Wextra -Werror -I$repository/include -I$sample -fPIC -fvisibility=hidden"
# shellcheck disable=SC2086
{
  cc $flags "$repository/samples/hosts/learner.c" -L"$build" -ldistag -o "$work/learner"
  cc $flags -shared "$sample/learning.c" -L"$build" -ldistag -o "$work/game/liblearning.so"
  cc $flags -shared "$here/measure.c" -o "$work/game/libmeasure.so"
}
export LD_LIBRARY_PATH="$build" HOME="$work/home" XDG_DATA_HOME="$work/home"

# The sample's run.sh looks for this.
printf 'Name: distag\nDescription: of a build\nVersion: 0\nLibs: -L%s -ldistag\nCflags: -I%s/include\n' \
  "$build" "$repository" >"$work/pkgconfig/distag.pc"
export PKG_CONFIG_PATH="$work/pkgconfig" PATH="$build/tools:$PATH"

blocking=$(/usr/bin/python3 -c 'import json, sys
print(*(each["name"] for each in json.load(open(sys.argv[1]))["functions"] if each["blocks"]))' \
  "$repository/bindings/api.json")
# shellcheck disable=SC2086
/usr/bin/python3 -B "$here/check.py" "$sample" "$build/tools/distag" "$work" $blocking
rm -rf "$work"
