#!/bin/sh
# Starts a nodelet manager with the robot and its learner, until Ctrl-C; and a ROS master, where ROS_MASTER_URI names
# none. It needs c++, ROS 1 and distag, each with its headers.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d) started=
trap '[ -z "$started" ] || kill $started 2>/dev/null || true; wait; rm -r "$work"' EXIT
trap 'exit 130' INT TERM
cc ../learner.c $(pkg-config --cflags --libs distag) -o "$work/learner"
mkdir -p "$work/lib" "$work/share/distag_robot"
c++ -std=c++17 -O2 -fPIC -shared -fno-gnu-unique robot.cpp $(pkg-config --cflags --libs distag roscpp) -lnodeletlib \
  -lclass_loader -I/usr/include/pluginlib -I/usr/include/class_loader -I/usr/include/rcutils -I/usr/include/rcpputils \
  -I/usr/include/ament_index_cpp -o "$work/lib/libdistag_robot.so"

# Where pluginlib looks: a folder of AMENT_PREFIX_PATH says which package has which nodelets.
cp package.xml plugins.xml "$work/share/distag_robot"
index=$work/share/ament_index/resource_index
mkdir -p "$index/packages" "$index/nodelet__pluginlib__plugin"
: >"$index/packages/distag_robot"
echo share/distag_robot/plugins.xml >"$index/nodelet__pluginlib__plugin/distag_robot"
export AMENT_PREFIX_PATH="$work" ROSCONSOLE_STDOUT_LINE_BUFFERED=1

if [ -z "${ROS_MASTER_URI:-}" ]; then
  export ROS_MASTER_URI=http://localhost:11311
  rosmaster --core &
  started=$!
fi
nodelet=/usr/lib/nodelet/nodelet
$nodelet load distag_robot/Cart manager __name:=cart &
started="$started $!"
$nodelet load distag_robot/Robot manager __name:=robot &
started="$started $!"
distag run -n 2 --restart 5 -- sh -c 'if [ "$RANK" = 0 ]; then exec "$0" manager __name:=manager; else exec "$1"; fi' \
  $nodelet "$work/learner"
