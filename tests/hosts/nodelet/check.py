"""A nodelet manager of ROS 1 loads the sample, as its user starts it too, and trains: no callback of the nodelet calls
what blocks, and the robot goes on while the learner is stopped; a learner that is killed is missed once and trained with
again; the gradients are those of the whole model in one process; the manager is left in a step; the nodelet is loaded
and unloaded ten times, each time with a learner of its own, and leaves no thread and no descriptor. (pluginlib keeps the
library until the manager ends.) The times of frames are told, and judge nothing.
usage: check.py SAMPLE DISTAG_COMMAND WORK_FOLDER"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from training import TIMES, Host, start, tell_frames  # noqa: E402

NODELET = "/usr/lib/nodelet/nodelet"
MASTER = ("localhost", 11311)
LIMIT = 0.02  # mean square of the force's error; that of an untrained policy is above ten times as much
ROUNDS = 10
FRAMES = rf"robot: (\d+) frames, (\d+) calls of C, (\d+) block, {TIMES}, (\d+) slept"
OF_ROS = 5  # sockets that ROS keeps for its next message, or opens with its first nodelet
PATIENCE = 60  # s, until what has ended is gone from /proc


def install(sample, work):
    """Links the sample with the functions of the test, and puts it where pluginlib looks."""
    os.makedirs(os.path.join(work, "lib"))
    with open(os.path.join(work, "options"), encoding="utf-8") as file:
        options = file.read().split()
    objects = [os.path.join(work, each) for each in ("sample.o", "wrap.o", "measure.o")]
    libraries = subprocess.run(["pkg-config", "--libs", "distag", "roscpp"], check=True, stdout=subprocess.PIPE,
                               text=True).stdout.split()
    subprocess.run(["c++", "-shared", *objects, *options, "-o", os.path.join(work, "lib", "libdistag_robot.so"),
                    *libraries, "-lnodeletlib", "-lclass_loader", "-lm"], check=True)
    package = os.path.join(work, "share", "distag_robot")
    os.makedirs(package)
    for each in ("package.xml", "plugins.xml"):
        shutil.copy(os.path.join(sample, each), package)
    for kind, text in (("packages", ""), ("nodelet__pluginlib__plugin", "share/distag_robot/plugins.xml")):
        folder = os.path.join(work, "share", "ament_index", "resource_index", kind)
        os.makedirs(folder)
        with open(os.path.join(folder, "distag_robot"), "w", encoding="utf-8") as file:
            file.write(text)


def load(kind, *arguments):
    """Loads a nodelet into the manager. The process stays, and unloads it when it is interrupted."""
    name = kind.lower()
    return Host(name, [NODELET, "load", f"distag_robot/{kind}", "manager", f"__name:={name}", *arguments])


def interrupt(host):
    os.kill(host.process.pid, signal.SIGINT)
    host.finish()


def start_master():
    master = Host("master", ["/usr/bin/rosmaster", "--core"])
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(MASTER, 1).close()
            return master
        except OSError:
            assert time.monotonic() < end and master.process.poll() is None, "there is no master"


def train(distag, work):
    loaded = [load("Cart"), load("Robot")]
    host = Host.run("robot", distag, os.path.join(work, "learner"), [NODELET, "manager", "__name:=manager"])
    learner = int(host.until(r"learner (\d+)")[1])
    host.check_gradients(LIMIT)
    trained, _ = host.lose_learner(learner, LIMIT)
    frames = host.leave(int(host.find(r"robot: process (\d+)")[1]), FRAMES)
    assert int(frames[3]) == 0 and host.count("left with 0 handles") == 1, host.lines
    host.check_missed_once()
    for each in loaded:
        interrupt(each)
    tell_frames("nodelet", frames, trained)
    print(f"figure: frames_of_nodelet_that_slept {frames[7]} frames")
    return trained


def count(manager):
    """Of its process: threads of ours, descriptors that are no sockets, and sockets."""
    threads = descriptors = sockets = 0
    for kind in ("task", "fd"):
        for each in os.listdir(f"/proc/{manager.process.pid}/{kind}"):
            path = f"/proc/{manager.process.pid}/{kind}/{each}"
            with suppress(FileNotFoundError):  # it has ended
                if kind == "task":
                    with open(path + "/comm", encoding="utf-8") as file:
                        threads += file.read().startswith(("distag", "ZMQ"))
                else:
                    is_socket = os.readlink(path).startswith("socket:")
                    sockets, descriptors = sockets + is_socket, descriptors + (not is_socket)
    return threads, descriptors, sockets


def reload(work):
    """Loads and unloads the robot in one manager."""
    manager = Host("robot", [NODELET, "manager", "__name:=manager"])
    cart = load("Cart")
    manager.until("Initializing")
    before = count(manager)
    for index in range(ROUNDS):
        place = os.path.join(work, f"round{index}")
        os.mkdir(place)
        robot = load("Robot", f"_rendezvous:=file://{place}")
        learner = Host("learner", [os.path.join(work, "learner")], DISTAG_RANK="1", DISTAG_WORLD_SIZE="2",
                       DISTAG_RENDEZVOUS="file://" + place)
        manager.until(manager.progress)
        held = count(manager)
        assert held[0] > before[0] == 0 and held[1] > before[1], (held, before)
        interrupt(robot)
        learner.finish()
        assert int(manager.until(FRAMES)[3]) == 0, manager.lines  # told in the shutdown
        end, now = time.monotonic() + PATIENCE, count(manager)
        while now[:2] != before[:2] or now[2] > before[2] + OF_ROS:  # what has ended is there for a moment longer
            assert time.monotonic() < end, f"round {index}: {now} threads, descriptors, sockets; {before} before"
            now = count(manager)
    interrupt(cart)
    os.kill(manager.process.pid, signal.SIGINT)
    manager.finish()
    assert manager.count("left with 0 handles") == 1, manager.lines


def main():
    sample, distag, work = sys.argv[1:]
    os.environ.update(ROS_HOSTNAME="localhost", ROSCONSOLE_STDOUT_LINE_BUFFERED="1")
    start("robot", sample)
    install(sample, work)
    os.environ["AMENT_PREFIX_PATH"] = work
    os.environ["ROS_MASTER_URI"] = "http://{}:{}".format(*MASTER)
    master = start_master()
    trained = train(distag, work)
    reload(work)
    interrupt(master)
    print(f"loss {trained[3]} after {trained[2]} steps; went on without a learner and after its end, without a blocking "
          f"call; loaded {ROUNDS} times")


if __name__ == "__main__":
    main()
