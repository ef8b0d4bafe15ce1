#!/bin/sh
# The sample of MuJoCo trains while physics runs. usage: run.sh REPOSITORY LIBRARY WORK_FOLDER    77: there is no MuJoCo
set -eu
echo '#include <mujoco/mujoco.h>' | cc -E - >/dev/null 2>&1 || {
  echo "MuJoCo is not installed: scripts/setup.sh bindings"
  exit 77
}
repository=$1 build=$(dirname "$2") work=$3
sample=$repository/samples/hosts/mujoco test=$repository/tests/hosts/mujoco
rm -rf "$work"
mkdir -p "$work/tmp" "$work/pkgconfig"
flags="-std=c11 -O1 -Wall -Wextra -Wshadow -Wconversion -Werror -I$repository/include"
cc $flags "$repository/samples/hosts/learner.c" -L"$build" -ldistag -o "$work/learner"

# The sample as it is; the linker puts functions of the test before those of distag that it calls, and before its wait.
cc $flags -Dmain=robot_main -c "$sample/main.c" -o "$work/sample.o"
/usr/bin/python3 -B "$test/../wrap.py" "$repository/bindings/api.json" "$work/sample.o" "$work/wrap.c" "$work/options" \
  distag_linear distag_mse_loss distag_optimizer_step_async distag_context_release
cc $flags "$test/measure.c" "$work/wrap.c" "$work/sample.o" -Wl,--wrap=clock_nanosleep $(cat "$work/options") \
  -L"$build" -ldistag -lmujoco -lm -o "$work/robot"

# What the sample's run.sh looks for.
printf 'Name: distag\nDescription: of a build\nVersion: 0\nLibs: -L%s -ldistag\nCflags: -I%s/include\n' \
  "$build" "$repository" >"$work/pkgconfig/distag.pc"
export LD_LIBRARY_PATH="$build" PKG_CONFIG_PATH="$work/pkgconfig" PATH="$build/tools:$PATH" TMPDIR="$work/tmp"

/usr/bin/python3 -B "$test/check.py" "$sample" "$build/tools/distag" "$work/learner" "$work/robot"
[ -z "$(ls -A "$work/tmp")" ] || { echo "left behind: $(ls -A "$work/tmp")"; exit 1; }
rm -rf "$work"
