#!/bin/sh
# The sample of ROS 1 trains in a nodelet manager, in a network namespace of its own: ROS listens on all interfaces.
# usage: run.sh REPOSITORY LIBRARY WORK_FOLDER    77: there is no ROS 1, or no such namespace
set -eu
if [ -z "${DISTAG_NAMESPACE:-}" ]; then
  if [ ! -x /usr/lib/nodelet/nodelet ]; then
    echo "nodelets are not installed: scripts/setup.sh bindings"
    [ -z "${DISTAG_REQUIRE_HOSTS:-}" ] || exit 1
    exit 77
  fi
  if ! unshare --net true 2>/dev/null; then
    echo "not run: a network namespace cannot be made, which needs CAP_SYS_ADMIN"
    [ -z "${DISTAG_CI:-}" ] || exit 1
    exit 77
  fi
  DISTAG_NAMESPACE=1 exec unshare --net sh "$0" "$@"
fi
ip link set lo up
repository=$1 build=$(dirname "$2") work=$3
sample=$repository/samples/hosts/nodelet test=$repository/tests/hosts/nodelet
rm -rf "$work"
mkdir -p "$work/tmp" "$work/home" "$work/pkgconfig"

# The sample's run.sh looks for this.
printf 'Name: distag\nDescription: of a build\nVersion: 0\nLibs: -L%s -ldistag\nCflags: -I%s/include -I%s/bindings/cpp\n' \
  "$build" "$repository" "$repository" >"$work/pkgconfig/distag.pc"
export LD_LIBRARY_PATH="$build" PKG_CONFIG_PATH="$work/pkgconfig" PATH="$build/tools:/usr/bin:$PATH" TMPDIR="$work/tmp"
export HOME="$work/home" ROS_HOME="$work/home"

# The sample as it is; the linker puts functions of the test before those of distag that it calls.
flags="-std=c11 -O1 -fPIC -Wall -Wextra -Wshadow -Wconversion -Werror -I$repository/include"
ros="-isystem /usr/include/pluginlib -isystem /usr/include/class_loader -isystem /usr/include/rcutils
  -isystem /usr/include/rcpputils -isystem /usr/include/ament_index_cpp"
# shellcheck disable=SC2086
{
  cc $flags "$repository/samples/hosts/learner.c" -L"$build" -ldistag -o "$work/learner"
  c++ -std=c++17 -O1 -fPIC -fno-gnu-unique -Wall -Wextra -Wshadow -Werror $ros $(pkg-config --cflags distag) \
    -c "$sample/robot.cpp" -o "$work/sample.o"
  /usr/bin/python3 -B "$test/../wrap.py" "$repository/bindings/api.json" "$work/sample.o" "$work/wrap.c" \
    "$work/options" distag_linear distag_mse_loss distag_optimizer_step_async distag_context_release distag_future_wait
  cc $flags -c "$work/wrap.c" -o "$work/wrap.o"
  cc $flags -c "$test/measure.c" -o "$work/measure.o"
}
/usr/bin/python3 -B "$test/check.py" "$sample" "$build/tools/distag" "$work"
[ -z "$(ls -A "$work/tmp")" ] || { echo "left behind: $(ls -A "$work/tmp")"; exit 1; }
rm -rf "$work"
